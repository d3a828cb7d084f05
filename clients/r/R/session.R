#' Sessions
#'
#' A session reserves a part of a data set's epsilon, and its questions spend
#' it. Close it at the end: what it did not spend goes back. One that nobody
#' closes does so after a week without questions.
#'
#' @param c A connection, as [curator()] makes them.
#' @param dataset Name of a data set.
#' @param epsilon The most that the session may spend. 0 asks what is free.
#' @param max_queries The most questions that it answers. Where it is left out
#'   there is no limit; with one, most sessions spend better.
#' @param ... Further options of the service, such as `dummy = TRUE` for made-up
#'   records, free of charge, or `within = 50` for intervals of this half-width.
#' @param id The id of a session that was opened before.
#' @param s A session.
#' @return A session, for [ask_count()], [ask_table()] and so on.
#'   `session_close()`: invisibly a list with `status`, `queries_asked` and
#'   `spent_epsilon`.
#' @examplesIf nzchar(Sys.getenv("CURATOR_API_KEY"))
#' c <- curator()
#' s <- session_open(c, "couples", epsilon = 0.05, max_queries = 20)
#' s
#' session_close(s)
#' @export
session_open <- function(c, dataset, epsilon, max_queries = NULL, ...) {
  segment(dataset, "dataset")
  body <- list(dataset = dataset, epsilon = epsilon, max_queries = max_queries, ...)
  session_of(c, call_service(c, "POST", "/v1/sessions", body[!vapply(body, is.null, NA)]))
}

#' @rdname session_open
#' @export
session_resume <- function(c, id) session_of(c, call_service(c, "GET", paste0("/v1/sessions/", segment(id, "id"))))

#' @rdname session_open
#' @export
session_close <- function(s) {
  closed <- call_session(s, "/close")
  invisible(closed[c("status", "queries_asked", "spent_epsilon")])
}

session_of <- function(c, state) {
  structure(class = "curator_session", list(
    connection = c, id = state[["id"]], dataset = state[["dataset"]], epsilon = number(state[["plan"]][["epsilon"]], "epsilon"),
    max_queries = number(state[["plan"]][["max_queries"]], "max_queries"), dummy = isTRUE(state[["dummy"]]),
    expected = state[["plan"]][["expected_standard_errors"]]
  ))
}

#' @export
print.curator_session <- function(x, ...) {
  questions <- if (is.na(x$max_queries)) "any number of questions" else paste(figure(x$max_queries), "questions")
  cat(sprintf("session %s on %s: epsilon %s, %s\n", x$id, x$dataset, format(x$epsilon), questions))
  if (x$dummy) cat("on made-up records\n")
  one <- number(x$expected[["one_attribute"]], "one_attribute")
  if (!is.na(one)) cat("expect a count under a condition on one attribute to be", plus_minus(), figure(one, one), "\n")
  invisible(x)
}

call_session <- function(s, path, body = NULL, statement = NULL) {
  if (!inherits(s, "curator_session")) refuse("invalid-request", "s: say a session, as session_open() makes them")
  call_service(s$connection, "POST", paste0("/v1/sessions/", segment(s$id, "id"), path), body, statement)
}
