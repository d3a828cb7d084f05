json <- function(...) json_text(question_of(...))

test_that("questions are those of the contract", {
  # Would catch a scalar where the contract has a list, a list where it has a scalar, and a number that is rounded.
  expect_equal(json(), '{"type":"predicate","where":{}}')
  expect_equal(
    json(where = list(sex = "female", code = c(1, 4), age = list(ge = 30, lt = 65), income = NA)),
    paste0(
      '{"type":"predicate","where":{"sex":{"equals":"female"},"code":{"in":[1,4]},"age":{"ge":30,"lt":65},',
      '"income":{"equals":null}}}'
    )
  )
  expect_equal(
    json(where = list(any = list(list(age = list(ge = 65)), list(not = list(code = list(`in` = 3)))))),
    '{"type":"predicate","where":{"any":[{"age":{"ge":65}},{"not":{"code":{"in":[3]}}}]}}'
  )
  expect_equal(json(by = "sex"), '{"type":"marginal","attributes":["sex"]}')
  expect_equal(
    json(by = c("age", "work"), bins = list(age = c(0, 40, 80), work = list(some = c("full", "part"), no = "none"))),
    paste0(
      '{"type":"marginal","attributes":["age","work"],"bins":{"age":[0,40,80],',
      '"work":{"some":["full","part"],"no":["none"]}}}'
    )
  )
  expect_equal(
    json(of = "income", by = "sex", where = list(joined = list(ge = as.Date("2020-02-01"))), within = 50),
    '{"type":"mean","of":"income","group_by":["sex"],"where":{"joined":{"ge":"2020-02-01"}},"within":50}'
  )
  expect_equal(json(of = "income", q = 0.5), '{"type":"quantile","of":"income","q":0.5}')
  expect_equal(json(of = "income", q = c(0.25, 0.5)), '{"type":"quantile","of":"income","q":[0.25,0.5]}')
  expect_equal(json(where = list(sex = factor("b", c("a", "b")))), json(where = list(sex = "b")))
  expect_equal(json(where = list(code = c(a = 1, b = NA))), '{"type":"predicate","where":{"code":{"in":[1,null]}}}')
})

test_that("numbers arrive as they are", {
  # Would catch an edge or a part that is another number for the service. The oracle is the reader of JSON.
  for (value in c(0.1, 1 / 3, 0.1 + 0.2, 2^53 + 2, 1e-300, -123456789.123456789, 30, 1e5)) {
    expect_identical(as.numeric(jsonlite::fromJSON(paste0("[", json_text(value), "]"))), value)
  }
  expect_equal(json_text(0.1), "0.1")
  expect_equal(json_text(30L), "30")
})

test_that("labels arrive as they are", {
  # Would catch an encoding or an escape that is not undone.
  for (label in c("Z\u00fcrich", "a \"b\"\\, c", "\u2028\n\t", "'", "</b>")) {
    expect_identical(jsonlite::fromJSON(json_text(list(a = label)))$a, label)
  }
})

test_that("a question in JSON stays what it is", {
  # Would catch an array of one that becomes a scalar, and an empty object that becomes an array.
  text <- '{"type":"cut","left":[3],"right":"all","weights":{},"none":[],"null":null,"yes":true,"deep":[[1],[0.1]]}'
  expect_equal(json(question = text), text)
  expect_match(json(question = text, at_most = 0.1), '"at_most":0.1}$')
})

test_that("a text opens nothing", {
  # Would catch a reply, or a question, that has a file of this machine read, or an address called.
  file <- tempfile()
  writeLines('{"type": "predicate", "where": {}}', file)
  for (text in c(file, paste0("file://", file))) {
    expect_null(parsed(text))
    expect_error(question_of(question = text), class = "curator_invalid_query")
  }
})

test_that("what cannot be meant is refused before anything is sent", {
  # Would catch a question that asks something else than what was written.
  wrong <- list(
    list(where = list("female")), list(where = c(sex = "female")), list(where = list(a = 1, a = 2)),
    list(where = list(age = list(30, 65))), list(where = list(sex = TRUE)), list(where = list(age = NaN)),
    list(where = list(age = list(ge = Inf))), list(where = list(sex = character())), list(where = list(sex = NULL)),
    list(where = list(any = list(sex = 1))), list(where = list(t = Sys.time())), list(where = list(f = mean)),
    list(by = "sex", bins = list(c(1, 2))), list(sex = "female"), list(by = character()), list(question = "SELECT 1"),
    list(question = "[1]"), list(question = NA), list(where = list(), 3)
  )
  for (given in wrong) expect_error(do.call(question_of, given), class = "curator_invalid_query")
  expect_match(conditionMessage(refusal(question_of(sex = "female"))), "where = list(sex = \"female\")", fixed = TRUE)
  expect_match(conditionMessage(refusal(question_of(where = list(age = NaN)))), "^age: ")
})
