reply <- list(
  sequence = 7L, source = "measurement", charged_epsilon = 0.01, confidence = 0.95, interval_kind = "unbiased",
  error_bound = NULL
)
one <- c(reply, list(value = 1234.4, standard_error = 56.2, interval = list(1124.3, 1344.5)))
table <- c(reply, list(
  axes = list(list(attribute = "sex", labels = list("female", "male", NULL))), values = list(60.5, NULL, 4L),
  standard_errors = list(2L, NULL, 3L), intervals = list(list(56L, 64L), NULL, list(0L, 10L))
))

test_that("a number has its error, its interval and what it cost", {
  # Would catch a number without its margin.
  answer <- table_of(one)
  expect_s3_class(answer, c("curator_table", "data.frame"), exact = TRUE)
  expect_named(answer, c("value", "standard_error", "low", "high"))
  expect_identical(unname(unlist(answer)), c(1234.4, 56.2, 1124.3, 1344.5))
  expect_equal(
    printed(answer),
    "1,234 \u00b1 56, 95% interval 1,124 to 1,344\nmeasurement, epsilon 0.01; intervals hold by construction"
  )
  expect_equal(attr(answer, "told")$charged_epsilon, 0.01)
})

test_that("a table says what is not known and what is too uncertain", {
  # Would catch a missing label that is taken for a missing cell, a doubt that is not said, and columns out of line.
  answer <- table_of(table)
  expect_identical(levels(answer$sex), c("female", "male"))
  expect_identical(is.na(answer$sex), c(FALSE, FALSE, TRUE))
  expect_identical(answer$value, c(60.5, NA, 4))
  expect_equal(printed(answer), paste(
    "sex                   95% interval",
    "female    60.5 \u00b1 2.0  56.0 to 64.0",
    "male             n/a",
    "no value   4.0 \u00b1 3.0  0.0 to 10.0   too uncertain",
    "n/a: there may be no such records at all. Ask it of more.",
    "measurement, epsilon 0.01; intervals hold by construction",
    sep = "\n"
  ))
  answer <- table_of(c(one[-7], list(value = 4, note = "so it is", dummy = TRUE)))
  expect_equal(
    printed(answer), paste(
      "4 \u00b1 56, 95% interval 1,124 to 1,344, too uncertain", "Of made-up records.",
      "measurement, epsilon 0.01; intervals hold by construction", "so it is",
      sep = "\n"
    )
  )
})

test_that("what is too uncertain errs by more than a third of itself", {
  # Would catch another bound.
  of <- function(value) printed(table_of(`[[<-`(`[[<-`(one, "value", value), "standard_error", 100)))
  for (value in c(299, -299, 0)) expect_match(of(value), "too uncertain")
  for (value in c(300, -300)) expect_false(grepl("too uncertain", of(value)))
})

test_that("a number without an error says so", {
  # Would catch a hypothesis' answer that looks exact.
  answer <- table_of(list(value = 1234.5678, source = "hypothesis", charged_epsilon = 0, standard_error = NULL, interval = NULL))
  expect_equal(printed(answer), "1,234.57 \u00b1 n/a\nhypothesis, free")
  bare <- table_of(c(table[1:7], list(values = list(1, 2, 3), standard_errors = NULL, intervals = NULL)))
  expect_identical(bare$low, rep(NA_real_, 3))
  expect_match(printed(bare), "female    1 \u00b1 n/a", fixed = TRUE)
})

test_that("cells are in their places", {
  # Would catch a transposed table: the last axis changes first.
  axes <- list(list(attribute = "value", labels = list(1L, 2L)), list(attribute = "value", labels = list("x", "y", "z")))
  answer <- table_of(c(reply, list(
    axes = axes, values = as.list(1:6), standard_errors = as.list(rep(0.1, 6)), intervals = rep(list(list(0, 9)), 6)
  )))
  expect_named(answer, c("value_", "value__", "value", "standard_error", "low", "high"))
  expect_identical(answer$value_, c(1, 1, 1, 2, 2, 2))
  expect_identical(as.character(answer$value__), c("x", "y", "z", "x", "y", "z"))
  expect_identical(answer$value, as.numeric(1:6))
})

test_that("long tables are cut off, and parts are tables", {
  # Would catch a page full of rows, and a part that prints without its error.
  axes <- list(list(attribute = "n", labels = as.list(1:100)))
  answer <- table_of(c(reply, list(
    axes = axes, values = as.list(1:100 + 0.5), standard_errors = as.list(rep(0.1, 100)),
    intervals = rep(list(list(0, 9)), 100)
  )))
  expect_match(printed(answer), "... and 60 more", fixed = TRUE)
  expect_match(printed(answer[answer$n == 77, ]), "77  77.50 \u00b1 0.10", fixed = TRUE)
  expect_match(printed(answer[1:2, c("n", "low")]), "  n low", fixed = TRUE)
  expect_match(printed(answer[0, ]), "0 rows", fixed = TRUE)
  expect_identical(answer[["value"]], 1:100 + 0.5)
})

test_that("what is no answer is said to be none", {
  # Would catch a table whose numbers stand in the wrong rows.
  expect_error(table_of(`[[<-`(table, "values", list(1))), class = "curator_protocol_error")
  expect_error(table_of(`[[<-`(one, "value", "many")), class = "curator_protocol_error")
})

test_that("numbers are written as the client in Python writes them", {
  # Would catch a digit too many, a lost comma and a minus before zero.
  server()
  for (each in told(shown = 1L)) {
    expect_identical(shown(each[[1]], each[[2]]), each[[3]])
  }
})
