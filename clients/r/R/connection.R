# The keys of this process' connections. They are kept here, and not in objects that are printed, or saved with a
# workspace.
KEYS <- new.env(parent = emptyenv())
# How many names were made in this process.
MADE <- new.env(parent = emptyenv())

# Seconds: the first and the longest pause between two tries.
PAUSES <- c(first = 0.1, longest = 5)
# Bytes of a reply.
MOST_BYTES <- 2^28

#' Connect to a curator
#'
#' Nothing is sent yet. The key is kept by the process: no object has it, so
#' that it is neither printed nor saved with a workspace. In a new process
#' connect again.
#'
#' Calls are repeated for `retry_for` seconds after failures of the connection
#' and where the service says that it has no time (429 and 503, after as long
#' as it asks for). Whatever spends carries an idempotency key, the same in all
#' tries: it is answered and paid for once.
#'
#' @param url Address of the service, without `/v1`: `CURATOR_URL` where it is
#'   left out, or port 8000 of this machine.
#' @param key Your key: `CURATOR_API_KEY` where it is left out.
#' @param timeout Seconds that one try may take.
#' @param retry_for Seconds for which a call is tried again.
#' @return A connection, for [datasets()], [dataset()] and [session_open()].
#' @examplesIf nzchar(Sys.getenv("CURATOR_API_KEY"))
#' c <- curator()
#' c
#' @export
curator <- function(url = NULL, key = NULL, timeout = 60, retry_for = 60) {
  url <- url %||% Sys.getenv("CURATOR_URL")
  if (!nzchar(url)) url <- "http://127.0.0.1:8000"
  key <- key %||% Sys.getenv("CURATOR_API_KEY")
  if (!is_text(url) || !grepl("^https?://[^@?#[:space:]]+$", url)) {
    refuse("invalid-request", "url: say the address of the service, as https://curator.example.org")
  }
  if (!is_text(key) || !grepl("^[!-~]+$", key)) refuse("unauthenticated", "there is no key")
  id <- unique_name()
  assign(id, key, envir = KEYS)
  structure(
    list(url = sub("/+$", "", url), id = id, timeout = timeout, retry_for = retry_for),
    class = "curator_connection"
  )
}

#' @export
print.curator_connection <- function(x, ...) {
  cat("curator at ", x$url, "\n", sep = "")
  invisible(x)
}

# The reply to a call, which must be a JSON object. All calls may be repeated: those that change something carry a key.
call_service <- function(c, method, path, body = NULL, statement = NULL) {
  if (!inherits(c, "curator_connection")) refuse("invalid-request", "c: say a connection, as curator() makes them")
  request <- request_of(c, method, path, body)
  deadline <- seconds() + c$retry_for
  pause <- PAUSES[["first"]]
  repeat {
    # A part of the clock and no random number: those of the user are left as they are.
    wait <- pause * (0.5 + seconds() %% 0.001 * 500)
    reply <- tryCatch(httr2::req_perform(request), error = identity)
    if (inherits(reply, "error")) {
      if (seconds() + wait > deadline) {
        refuse("unreachable", sprintf("no reply from %s: %s", c$url, conditionMessage(reply)))
      }
    } else {
      status <- httr2::resp_status(reply)
      found <- parsed(tryCatch(httr2::resp_body_string(reply), error = function(error) ""))
      if (status %/% 100 == 2) {
        if (is.null(found)) protocol_error(sprintf("%s answered with something that is no JSON object", c$url))
        return(found)
      }
      asked <- tryCatch(httr2::resp_retry_after(reply), error = function(error) NA, warning = function(error) NA)
      if (!is.na(asked)) wait <- max(asked, 0)
      if (!status %in% c(429, 503) || seconds() + wait > deadline) {
        refused(status, found, if (!is.na(asked)) wait, statement)
      }
    }
    Sys.sleep(wait)
    pause <- min(2 * pause, PAUSES[["longest"]])
  }
}

request_of <- function(c, method, path, body) {
  key <- KEYS[[c$id]]
  if (is.null(key)) refuse("unauthenticated", "keys are not kept from one R process to the next: connect again")
  request <- httr2::request(paste0(c$url, path))
  request <- httr2::req_method(request, method)
  request <- httr2::req_auth_bearer_token(request, key)
  request <- httr2::req_user_agent(request, paste0("curatr/", utils::packageVersion("curatr")))
  request <- httr2::req_timeout(request, c$timeout)
  # The key goes to this address alone, and a reply has a size that it may not pass.
  request <- httr2::req_options(request, followlocation = FALSE, maxfilesize_large = MOST_BYTES)
  # httr2 by itself would wait as long as it is told to, also where it does not try again, and draw random numbers.
  request <- httr2::req_retry(request, 1, is_transient = function(reply) FALSE, backoff = function(tries) 0)
  request <- httr2::req_error(request, is_error = function(reply) FALSE)
  if (method == "POST") {
    request <- httr2::req_headers(request, `Idempotency-Key` = unique_name())
    if (!is.null(body)) request <- httr2::req_body_raw(request, json_text(body), "application/json")
  }
  request
}

# A name that nothing else has: of this process' own folder, the clock and a count. It draws no random numbers, as they
# may have been seeded: two runs of a script would then ask under the same keys.
unique_name <- function() {
  MADE$count <- (MADE$count %||% 0) + 1
  sprintf("%s-%d-%.0f-%.0f", basename(tempdir()), Sys.getpid(), seconds() * 1e6, MADE$count)
}

seconds <- function() as.numeric(Sys.time())

is_text <- function(value) is.character(value) && length(value) == 1 && !is.na(value) && nzchar(value)

segment <- function(name, what) {
  if (!is_text(name)) refuse("invalid-request", sprintf("%s: say one name, in quotes", what))
  utils::URLencode(enc2utf8(name), reserved = TRUE)
}
