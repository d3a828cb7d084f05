problem <- function(code, ..., status = 409) {
  body <- list(type = paste0("/problems/", code), title = "No", status = status, detail = "so it is", ...)
  refusal(refused(status, body, NULL))
}

test_that("a refusal has the class of its code, and says what to do", {
  # Would catch an error that tryCatch cannot tell from others.
  error <- problem("budget-exhausted", requested = 1, remaining = 0.25)
  expect_s3_class(error, c("curator_budget_exhausted", "curator_error", "error", "condition"), exact = TRUE)
  expect_equal(conditionMessage(error), paste("No: so it is.", ADVICE[["budget-exhausted"]]))
  expect_equal(error[c("code", "title", "status", "detail")], list(
    code = "budget-exhausted", title = "No", status = 409, detail = "so it is"
  ))
  expect_equal(error$extra, list(requested = 1, remaining = 0.25))
  expect_equal(conditionMessage(problem("invalid-query")), "No: so it is")
  expect_s3_class(problem("something-new"), "curator_something_new")
})

test_that("the place in a statement is shown", {
  # Would catch a caret that stands below another word.
  body <- list(
    type = "/problems/sql-refused", title = "No", detail = "line 2, column 8: age is counted in bins", line = 2L,
    column = 8L, length = 3L
  )
  error <- refusal(refused(422, body, NULL, "SELECT COUNT(*) FROM t\n\tWHERE age BETWEEN 30 AND 64"))
  expect_equal(
    conditionMessage(error),
    "line 2, column 8: age is counted in bins\n  \tWHERE age BETWEEN 30 AND 64\n  \t      ^^^"
  )
  body$line <- 9L
  expect_equal(conditionMessage(refusal(refused(422, body, NULL, "SELECT"))), body$detail)
})

test_that("what is no problem object is known by its status", {
  # Would catch a proxy's page that is no error of this package, and a hostile reply that is another error.
  for (body in list(NULL, list(a = 1), list(type = 3, title = list(), detail = NA))) {
    expect_s3_class(refusal(refused(503, body, NULL)), "curator_unavailable")
    expect_match(conditionMessage(refusal(refused(503, body, NULL))), "HTTP 503")
    expect_s3_class(refusal(refused(418, body, NULL)), "curator_unknown")
  }
  expect_s3_class(refusal(refused(409, list(type = "/problems/A b"), NULL)), "curator_conflict")
})
