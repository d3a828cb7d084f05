#' Errors
#'
#' What the service refuses, and what fails on the way, are conditions. Their
#' message says what to do next.
#'
#' A refusal has the class `curator_CODE` by the service's name for the
#' problem, with underscores: `curator_budget_exhausted`,
#' `curator_queries_exhausted`, `curator_session_closed`,
#' `curator_plan_infeasible`, `curator_invalid_query`, `curator_sql_refused`,
#' `curator_not_found`, `curator_forbidden`, `curator_unauthenticated` and so
#' on. Two come from this package: `curator_unreachable`, where no reply came,
#' and `curator_protocol_error`, where the reply is none of a curator's. All of
#' them have the class `curator_error`.
#'
#' A condition has `code`, `title`, `status` (of HTTP, `NA` where nothing was
#' sent), `detail`, `extra` (a list of what else the service says, such as
#' `requested` and `remaining` of a budget) and `retry_after`, in seconds.
#'
#' @name curator_errors
#' @examples
#' tryCatch(
#'   curator("http://127.0.0.1:8000", key = ""),
#'   curator_unauthenticated = function(error) conditionMessage(error)
#' )
NULL

# What whoever is refused does next, where the service's own words leave that open.
ADVICE <- c(
  "unauthenticated" = "Give the key that the admin told you, as curator(url, key) or in CURATOR_API_KEY.",
  "forbidden" = "Ask an admin for the role, or for a grant on the data set.",
  "not-found" = "datasets(c) has the names of all data sets; sessions are seen by whoever opened them.",
  "budget-exhausted" =
    "Ask for less epsilon, or session_close() what you no longer need: what it did not spend comes back.",
  "queries-exhausted" = "Open another session, with a larger max_queries.",
  "updates-exhausted" = "Open another session, with a larger max_queries.",
  "session-closed" = "session_open() opens one: what follows from what was measured before is free in it.",
  "payload-too-large" = "Send less at once.",
  "too-many-requests" = "Wait, or give curator() a larger retry_for.",
  "unavailable" = "Try again later: what was answered is answered alike, and paid for once."
)

# The problems of replies that are no problem objects: what stands between may send these.
STATUSES <- c(
  "401" = "unauthenticated", "403" = "forbidden", "404" = "not-found", "409" = "conflict",
  "413" = "payload-too-large", "422" = "invalid-request", "429" = "too-many-requests",
  "502" = "unavailable", "503" = "unavailable", "504" = "unavailable"
)

# Raise what a reply refuses.
refused <- function(status, body, retry_after, statement = NULL) {
  told <- function(name) if (is.character(body[[name]])) body[[name]]
  code <- sub("^.*/", "", told("type") %||% "")
  if (!grepl("^[a-z-]+$", code)) code <- c(stats::na.omit(STATUSES[as.character(status)]), "unknown")[[1]]
  extra <- as.list(body)[setdiff(names(body), c("type", "title", "status", "detail"))]
  message <- paste(c(told("title") %||% paste("HTTP", status), told("detail")), collapse = ": ")
  if (code == "sql-refused" && !is.null(statement)) {
    message <- paste0(told("detail") %||% message, marked(statement, extra))
  } else if (!is.na(advice <- ADVICE[code])) {
    message <- paste0(sub("\\.$", "", message), ". ", advice)
  }
  signal(message, code, told("title"), status, told("detail"), extra, retry_after)
}

# Raise what this package refuses by itself, before anything is sent.
refuse <- function(code, detail) {
  advice <- if (code == "unauthenticated") paste0(". ", ADVICE[[code]])
  signal(paste0(detail, advice), code, detail = detail)
}

protocol_error <- function(detail) {
  refuse("protocol-error", paste0(detail, ": most likely something else listens at that address"))
}

signal <- function(message, code, title = NULL, status = NA_integer_, detail = NULL, extra = list(),
                   retry_after = NULL) {
  class <- c(paste0("curator_", gsub("-", "_", code)), "curator_error", "error", "condition")
  # Without a call: that of curator() may have the key in it.
  stop(structure(class = class, list(
    message = message, call = NULL, code = code, title = title, status = status, detail = detail,
    extra = extra, retry_after = retry_after
  )))
}

# The line of a statement that is refused, and carets below the place.
marked <- function(statement, place) {
  lines <- strsplit(statement, "\n", fixed = TRUE)[[1]]
  at <- vapply(c("line", "column", "length"), function(name) {
    as.integer(number(place[[name]], name, null = 1))
  }, 1L)
  if (at["line"] < 1 || at["line"] > length(lines)) return("")
  line <- lines[at["line"]]
  before <- gsub("[^\t]", " ", substr(line, 1, at["column"] - 1))
  paste0("\n  ", line, "\n  ", before, strrep("^", max(min(at["length"], nchar(line)), 1)))
}

`%||%` <- function(value, otherwise) if (is.null(value)) otherwise else value
