test_that("data sets show public facts alone", {
  # Would catch a number that is not public, and a fact that is lost.
  c <- server()
  listed <- datasets(c)
  expect_equal(listed$name, c("couples", "hidden", "people"))
  expect_equal(listed$records[2:3], c(NA, 4000))
  people <- dataset(c, "people")
  expect_equal(people$attributes$name, c("sex", "city", "age", "income", "joined", "value"))
  expect_equal(people$attributes$has_mean, c(FALSE, FALSE, TRUE, TRUE, FALSE, FALSE))
  expect_match(printed(people), "people: table, 4,000 records (public); one record added or removed; epsilon", fixed = TRUE)
  expect_match(printed(people), "income  0 to 1000, or no value     has a mean", fixed = TRUE)
  expect_match(printed(dataset(c, "hidden")), "number of records not public", fixed = TRUE)
})

test_that("a session is opened, resumed and closed", {
  # Would catch a share that is not reserved, or does not come back.
  c <- server()
  before <- dataset(c, "people")$left
  s <- session_open(c, "people", epsilon = 0.5, max_queries = 10)
  expect_equal(before - dataset(c, "people")$left, 0.5)
  expect_match(printed(s), sprintf("session %s on people: epsilon 0.5, 10 questions", s$id), fixed = TRUE)
  answer <- ask_count(session_resume(c, s$id), list(sex = "female"))
  again <- ask_count(s, list(sex = "female"))
  expect_identical(again$value, answer$value)
  expect_equal(attr(again, "told")$source, "cached")
  closed <- session_close(s)
  expect_equal(closed$status, "closed")
  expect_equal(before - dataset(c, "people")$left, closed$spent_epsilon)
  expect_error(ask_count(s, list(sex = "male")), class = "curator_session_closed")
})

test_that("the price is what is charged", {
  # Would catch a price of another question.
  s <- session_open(server(), "people", epsilon = 2, max_queries = 40)
  calls <- list(
    list(ask_count, where = list(city = "Z\u00fcrich", value = 1)), list(ask_table, by = c("value", "sex")),
    list(ask_mean, of = "age", by = "sex"), list(ask_quantile, of = "age", q = 0.4),
    list(ask, question = '{"type": "variance", "of": "age"}'),
    list(ask_sql, text = "SELECT value, COUNT(*) FROM people WHERE age < 20 GROUP BY value")
  )
  for (call in calls) {
    told <- do.call(price, c(list(s), call[-1]))
    expect_s3_class(told, "curator_price")
    answer <- do.call(call[[1]], c(list(s), call[-1]))
    expect_equal(attr(answer, "told")$charged_epsilon, told$epsilon, info = told$question)
    expect_match(printed(told), told$question, fixed = TRUE)
  }
  expect_equal(price(s, of = "age", q = 0.4)$epsilon, 0)
  expect_match(printed(price(s, of = "age", q = 0.4)), "Quantile 0.4 of age: free, interval \u00b1 ", fixed = TRUE)
  expect_error(price(s, "age"), class = "curator_invalid_request")
  session_close(s)
})

test_that("statements are answered", {
  # Would catch an error of one column beside the number of another one.
  s <- session_open(server(), "people", epsilon = 1, max_queries = 20)
  rows <- ask_sql(s, "SELECT sex, AVG(age) AS m, COUNT(*) AS n FROM people GROUP BY sex")
  expect_named(rows, c("sex", "m", "m_se", "m_low", "m_high", "n", "n_se", "n_low", "n_high"))
  same <- ask_mean(s, "age", by = "sex")
  expect_identical(rows$m, same$value)
  expect_equal(rows$m_se, same$standard_error, tolerance = 1e-6)
  expect_identical(rows$n_high, ask_table(s, "sex")$high)
  expect_match(printed(rows), paste0("female +", shown(rows$m[1], rows$m_se[1]), " +", shown(rows$n[1], rows$n_se[1])))
  quantiles <- ask_sql(s, "SELECT PERCENTILE_DISC(ARRAY[0.25, 0.75]) WITHIN GROUP (ORDER BY age) FROM people")
  expect_identical(quantiles$percentile_disc[[1]], ask_quantile(s, "age", c(0.25, 0.75))$value)
  expect_equal(ask_sql(s, "SHOW TABLES")$name, c("couples", "hidden", "people"))
  expect_equal(ask_sql(s, "DESCRIBE people")$missing, c(TRUE, FALSE, FALSE, TRUE, FALSE, FALSE))
  error <- refusal(ask_sql(s, "SELECT *\nFROM people"))
  expect_s3_class(error, "curator_sql_refused")
  expect_match(conditionMessage(error), "SELECT *\n         ^", fixed = TRUE)
  session_close(s)
})

test_that("each refusal has its class, and its message the way on", {
  # Would catch an error that leaves people where they are.
  c <- server()
  refused <- function(code, class, ...) {
    error <- refusal(code)
    expect_s3_class(error, class)
    for (word in c(...)) expect_match(conditionMessage(error), word, fixed = TRUE)
    error
  }
  error <- refused(session_open(c, "people", epsilon = 99), "curator_budget_exhausted", "less epsilon", "session_close()")
  expect_equal(error$extra$requested, 99)
  refused(session_open(c, "peopel", epsilon = 1), "curator_not_found", "did you mean 'people'", "datasets(c)")
  refused(session_open(c, "hidden", epsilon = 0.01), "curator_forbidden", "grant")
  refused(datasets(curator(key = "nobodys")), "curator_unauthenticated", "CURATOR_API_KEY")
  refused(session_resume(c, "nothing"), "curator_not_found")
  refused(dataset(c, c("a", "b")), "curator_invalid_request")
  refused(curator("curator.example.org"), "curator_invalid_request", "https://")
  refused(ask_count(c), "curator_invalid_request", "session_open()")
  s <- session_open(c, "people", epsilon = 0.2, max_queries = 1, start = "nothing")
  refused(ask_table(s, "sexx"), "curator_invalid_query", "did you mean 'sex'")
  error <- refused(ask_count(s, list(value = 1), at_most = 1e-9), "curator_plan_infeasible", "allow more")
  expect_gt(error$extra$needed, 1e-9)
  refused(ask_count(s, list(value = 1), within = 1e-6), "curator_plan_infeasible", "larger share")
  expect_equal(attr(ask_count(s, list(value = 1)), "told")$queries_left, 0)
  refused(ask_count(s, list(value = 2)), "curator_queries_exhausted", "max_queries")
  session_close(s)
})

test_that("keys are not shown, and not saved", {
  # Would catch a key in an object, an error or a file.
  c <- server()
  key <- Sys.getenv("CURATOR_API_KEY")
  s <- session_open(c, "people", epsilon = 0)
  file <- tempfile()
  saveRDS(s, file, compress = FALSE)
  saved <- rawToChar(Filter(as.logical, readBin(file, "raw", 1e6)))
  texts <- c(
    saved, printed(c), printed(s), utils::capture.output(str(s)), deparse(s), utils::capture.output(print(unclass(s))),
    conditionMessage(refusal(curator(key = "two words"))), format(refusal(datasets(curator(key = "some-key-of-old")))),
    conditionMessage(refusal(datasets(curator("http://127.0.0.1:9", key, retry_for = 0))))
  )
  expect_false(any(grepl(key, texts, fixed = TRUE)), info = "the key")
  expect_false(any(grepl("some-key-of-old|two words", texts)), info = "other keys")
  expect_true(nchar(saved, "bytes") > 100)
  rm(list = c$id, envir = KEYS)
  expect_error(ask_count(readRDS(file)), "connect again", class = "curator_unauthenticated")
})
