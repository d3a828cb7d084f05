keys <- function(seen) vapply(Filter(function(call) call[[1]] == "POST", seen), `[[`, "", 3)

busy <- function(status, after = 0) list(status, list(`Retry-After` = as.character(after)))
spent <- function(s) call_service(s$connection, "GET", paste0("/v1/sessions/", s$id))$spent_epsilon

test_that("a lost reply is asked for again under the same key, and paid for once", {
  # Would catch a second charge, and a second number for one question.
  s <- session_open(proxied(), "people", epsilon = 0.5, max_queries = 5, start = "nothing")
  before <- spent(s)
  told(fates = list("lost", "lost", "passed"))
  answer <- ask_count(s, list(sex = "female", value = 1))
  seen <- keys(told(seen = TRUE))
  expect_length(seen, 3)
  expect_length(unique(seen), 1)
  expect_gt(attr(answer, "told")$charged_epsilon, 0)
  expect_equal(attr(answer, "told")$sequence, 1)
  expect_equal(attr(ask_count(s, list(sex = "female", value = 1)), "told")$source, "cached")
  expect_false(keys(told(seen = TRUE))[4] == seen[1])
  expect_equal(spent(s) - before, attr(answer, "told")$charged_epsilon)
  expect_equal(session_close(s)$queries_asked, 1)
})

test_that("an answer outlives the server that gave it", {
  # Would catch an answer that is drawn, or paid for, twice where the server is killed before it was read.
  s <- session_open(proxied(), "people", epsilon = 0.5, max_queries = 5, start = "nothing")
  told(fates = list("killed"))
  answer <- ask_table(s, c("sex", "value"), where = list(age = list(ge = 40)))
  expect_gt(length(told(seen = TRUE)), 1)
  expect_length(unique(keys(told(seen = TRUE))), 1)
  expect_gt(attr(answer, "told")$charged_epsilon, 0)
  again <- by_python(s, question = list(
    type = "marginal", attributes = list("sex", "value"), where = list(age = list(ge = 40))
  ))
  expect_identical(lapply(again$rows, `[[`, "value"), as.list(answer$value))
  expect_equal(session_close(s)$queries_asked, 1)
})

test_that("a server that has no time is asked again when it says", {
  # Would catch a client that hurries, or gives up.
  c <- proxied()
  told(fates = list(busy(503, 1), busy(429, 1), busy(503)))
  began <- Sys.time()
  expect_equal(dataset(c, "people")$name, "people")
  expect_gt(as.numeric(Sys.time() - began, units = "secs"), 2)
  expect_length(told(seen = TRUE), 4)
  told(fates = list(busy(503, format(Sys.time() + 2, "%a, %d %b %Y %H:%M:%S GMT", tz = "UTC"))))
  expect_equal(dataset(c, "people")$name, "people")
})

test_that("tries have an end", {
  # Would catch a loop, and a wait that is longer than was allowed.
  told(fates = list(busy(503, 3600)))
  error <- refusal(dataset(proxied(), "people"))
  expect_s3_class(error, "curator_unavailable")
  expect_equal(error$retry_after, 3600)
  told(fates = rep(list(busy(429, 0.1)), 100))
  expect_error(dataset(proxied(retry_for = 0.5), "people"), class = "curator_too_many_requests")
  expect_lt(length(told(seen = TRUE)), 7)
  told(fates = list())
  began <- Sys.time()
  expect_error(dataset(curator("http://127.0.0.1:9", retry_for = 1), "people"), class = "curator_unreachable")
  expect_gt(as.numeric(Sys.time() - began, units = "secs"), 0.3)
  told(fates = list(busy(500)))
  expect_error(dataset(proxied(), "people"), class = "curator_unknown")
  expect_length(told(seen = TRUE), 1)
})

test_that("what is no curator is said to be none, and gets no key", {
  # Would catch a key that follows a redirect, and a page that is taken for an answer.
  told(fates = list(busy(200), list(302, list(Location = "/v1/datasets/people"))))
  expect_error(dataset(proxied(), "people"), class = "curator_protocol_error")
  expect_error(dataset(proxied(), "people"), class = "curator_unknown")
  expect_length(told(seen = TRUE), 2)
})

test_that("no random number of the user's is drawn", {
  # Would catch keys that are the same in two runs of a script, and a seed that no longer gives what it gave.
  server()
  set.seed(1)
  before <- .Random.seed
  first <- unique_name()
  dataset(curator(), "people")
  expect_identical(.Random.seed, before)
  set.seed(1)
  expect_false(unique_name() == first)
  expect_match(first, "^[!-~]{10,255}$")
})
