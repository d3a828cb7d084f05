# What is sent, as JSON: arrays are lists without names, objects have names, and numbers arrive as the doubles they are.

json_text <- function(body) {
  as.character(jsonlite::toJSON(plain(body), auto_unbox = TRUE, null = "null", json_verbatim = TRUE))
}

# A value as jsonlite writes it; `name` is what a refusal calls it.
plain <- function(value, name = "the question") {
  if (is.factor(value)) value <- as.character(value)
  if (inherits(value, "Date")) value <- format(value, "%Y-%m-%d")
  if (is.null(value) || inherits(value, "json")) return(value)
  if (is.list(value)) return(lapply(value, plain, name = name))
  if (is.object(value) || !(is.numeric(value) || is.character(value) || is.logical(value))) {
    refuse("invalid-query", sprintf("%s: %s is no value: numbers, strings, dates and NA are", name, class(value)[1]))
  }
  values <- lapply(unname(value), scalar, name = name)
  if (length(values) == 1) values[[1]] else values
}

scalar <- function(value, name) {
  if (is.nan(value) || is.infinite(value)) {
    refuse("invalid-query", sprintf("%s: %s is no value: NA stands for no value", name, value))
  }
  if (is.na(value)) return(NULL)
  if (is.character(value)) return(enc2utf8(value))
  if (is.logical(value)) return(value)
  # Fifteen digits where they tell the number, as people write it; else as many as it takes.
  digits <- sprintf("%.15g", value)
  structure(if (as.numeric(digits) == value) digits else sprintf("%.17g", value), class = "json")
}

# Several values, one of them too, as an array.
several <- function(values, name) {
  if (!length(values)) refuse("invalid-query", sprintf("%s: name at least one value", name))
  found <- plain(values, name)
  if (length(values) == 1 && !is.list(values)) list(found) else unname(found)
}

# An object of JSON, NULL for anything else. A text is parsed as it is: one that names a file or an address opens nothing.
parsed <- function(text) {
  found <- tryCatch(jsonlite::parse_json(text), error = function(error) NULL)
  if (is.list(found) && !is.null(names(found))) found
}

# A member of a reply that is a number, or null where that may be.
number <- function(value, name, null = NA_real_) {
  if (is.null(value)) return(null)
  if (!is.numeric(value) || length(value) != 1) protocol_error(sprintf("%s is no number", name))
  as.numeric(value)
}
