# The same questions, as R says them.
questions <- list(
  all = function(s) ask_count(s),
  count = function(s) ask_count(s, where = list(sex = "female", age = list(ge = 30, lt = 60))),
  several = function(s) ask_count(s, where = list(value = c(0, 2), city = "a \"b\"\\, c")),
  missing = function(s) ask_count(s, where = list(sex = NA)),
  dates = function(s) ask_count(s, where = list(joined = list(ge = as.Date("2021-01-01")))),
  joined = function(s) {
    ask_count(s, where = list(any = list(list(age = list(ge = 60)), list(sex = "male")), not = list(value = 1)))
  },
  bound = function(s) ask_count(s, where = list(income = list(at = "upper"))),
  impossible = function(s) ask_count(s, where = list(age = list(lt = 10), value = 2)),
  table = function(s) ask_table(s, by = c("sex", "value")),
  binned = function(s) {
    ask_table(s, by = c("age", "city"), where = list(value = c(0, 1)), bins = list(age = c(0, 40, 80)))
  },
  groups = function(s) {
    ask_table(s, by = "city", bins = list(city = list(one = "Z\u00fcrich", other = "a \"b\"\\, c")))
  },
  mean = function(s) ask_mean(s, "income"),
  means = function(s) ask_mean(s, "income", by = "sex", where = list(age = list(ge = 20))),
  nobody = function(s) ask_mean(s, "income", where = list(age = list(lt = 10), value = 2, sex = "male")),
  median = function(s) ask_quantile(s, "income"),
  quantiles = function(s) ask_quantile(s, "income", q = c(0.25, 0.5), by = "sex"),
  share = function(s) ask(s, '{"type": "share", "of": {"value": 1}, "group_by": ["sex"]}')
)

test_that("what Python was told R is told", {
  # Python asks first, in its own words. Would catch a question of R that is another one, for then it is not cached;
  # and numbers, labels or words that differ. Values are kept; the service computes errors anew, to about eight digits.
  s <- session_open(server(), "people", epsilon = 3, max_queries = 60)
  for (name in names(questions)) {
    python <- by_python(s, name = name)
    answer <- questions[[name]](s)
    expect_equal(attr(answer, "told")$source, "cached", info = name)
    expect_equal(rows_in_r(answer), python$rows, tolerance = 1e-6, info = name)
    expect_identical(lapply(rows_in_r(answer), `[[`, "value"), lapply(python$rows, `[[`, "value"), info = name)
    lines <- strsplit(printed(answer), "\n")[[1]]
    for (row in seq_along(python$shown)) {
      line <- lines[row + if (nrow(answer) > 1) 1 else 0]
      expect_match(line, python$shown[[row]], fixed = TRUE, info = name)
      expect_equal(grepl("too uncertain", line), python$doubted[[row]], info = name)
    }
  }
  session_close(s)
})

test_that("what R was told Python is told", {
  # The other way round. Would catch a number that is changed on its way into R.
  s <- session_open(server(), "people", epsilon = 3, max_queries = 60)
  for (name in c("count", "table", "means", "quantiles")) {
    answer <- questions[[name]](s)
    expect_false(attr(answer, "told")$source == "cached", info = name)
    expect_equal(lapply(by_python(s, name = name)$rows, `[[`, "value"), as.list(answer$value), info = name)
  }
  session_close(s)
})

test_that("the console's text in R asks its question", {
  # Would catch a label that ends the string, or is another label.
  server()
  for (label in c("it's", "\\", "\\'", "'); q(\"no\"); ('", "\"", "Z\u00fcrich", "a\nb", "\\u0041")) {
    expression <- parse(text = told(in_r = list(label))[[1]])[[1]]
    expect_identical(as.list(expression)[1:2], list(quote(ask), quote(s)))
    expect_length(expression, 3)
    expect_identical(names(parsed(expression[[3]])$weights), label)
  }
})
