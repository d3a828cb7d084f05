# Tests that need a server have one where `make r` runs them: without it they are skipped, and `make r` takes no skip.

server <- function() {
  testthat::skip_if(Sys.getenv("CURATR_PROXY") == "", "there is no server: make r starts one")
  curator()
}

# The same by way of the proxy, which does to replies what `told(fates = )` says.
proxied <- function(...) {
  server()
  curator(Sys.getenv("CURATR_PROXY"), ...)
}

# What the proxy says to a test; see tools/check.py.
told <- function(...) {
  request <- httr2::request(paste0(Sys.getenv("CURATR_PROXY"), "/test"))
  reply <- httr2::req_perform(httr2::req_body_json(request, list(...)))
  jsonlite::fromJSON(httr2::resp_body_string(reply), simplifyVector = FALSE)$told
}

# What the client in Python is told, in the same session: `rows`, `shown` and `doubted`.
by_python <- function(s, ...) {
  found <- told(session = s$id, key = Sys.getenv("CURATOR_API_KEY"), ...)
  found$rows <- lapply(found$rows, lapply, function(value) if (is.integer(value)) as.numeric(value) else value)
  found
}

# An answer's rows as the client in Python has them.
rows_in_r <- function(answer) {
  lapply(seq_len(nrow(answer)), function(row) {
    lapply(as.list(as.data.frame(answer)[row, , drop = FALSE]), function(value) {
      if (is.na(value)) NULL else if (is.factor(value)) as.character(value) else as.numeric(value)
    })
  })
}

printed <- function(x) paste(utils::capture.output(print(x)), collapse = "\n")

# What a refusal says and is.
refusal <- function(code) tryCatch(code, curator_error = identity)
