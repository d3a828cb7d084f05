#' Data sets
#'
#' `datasets()` lists all of them, `dataset()` tells the public facts of one:
#' what was declared, and what is left of the budget. Nothing of it is private.
#'
#' @param c A connection, as [curator()] makes them.
#' @param name Name of a data set.
#' @return `datasets()`: a data frame with a row a data set. `dataset()`: a
#'   list with `name`, `kind`, `description`, `privacy_unit` (what neighbours
#'   differ in), `records` (`NA` where their number is not public), `epsilon`,
#'   `left` (what is left of it) and `attributes`, of a table a data frame.
#' @examplesIf nzchar(Sys.getenv("CURATOR_API_KEY"))
#' c <- curator()
#' datasets(c)
#' @export
datasets <- function(c) {
  items <- list()
  following <- "/v1/datasets?limit=1000"
  while (!is.null(following)) {
    page <- call_service(c, "GET", following)
    items <- append(items, lapply(page[["items"]], described))
    following <- page[["next"]]
    # The next request has the key in it: it must not go to another address.
    if (!is.null(following) && !startsWith(following, "/v1/datasets?")) protocol_error("the next page is elsewhere")
  }
  column <- function(name, kind) vapply(items, `[[`, kind, name)
  data.frame(
    name = column("name", ""), kind = column("kind", ""), records = column("records", 0),
    epsilon = column("epsilon", 0), left = column("left", 0)
  )
}

#' @rdname datasets
#' @export
dataset <- function(c, name) {
  described(call_service(c, "GET", paste0("/v1/datasets/", segment(name, "name"))))
}

described <- function(reply) {
  structure(class = "curator_dataset", list(
    name = reply[["name"]], kind = reply[["kind"]], description = reply[["description"]] %||% "",
    privacy_unit = reply[["privacy_unit"]], records = number(reply[["records"]], "records"),
    epsilon = number(reply[["budget"]][["epsilon"]], "epsilon"),
    left = number(reply[["budget"]][["remaining_epsilon"]], "remaining_epsilon"),
    attributes = if (identical(reply[["kind"]], "table")) attributes_of(reply[["domain"]][["attributes"]])
  ))
}

attributes_of <- function(declared) {
  data.frame(
    name = vapply(declared, `[[`, "", "name"),
    values = vapply(declared, values_of, ""),
    has_mean = vapply(declared, function(each) !is.null(each$grid), NA)
  )
}

# What values an attribute has, in a few words.
values_of <- function(declared) {
  labels <- unlist(declared[["values"]])
  told <- if (!is.null(labels)) {
    paste(c(utils::head(labels, 8), if (length(labels) > 8) "..."), collapse = ", ")
  } else if (!is.null(declared[["size"]])) {
    sprintf("0 to %d", declared[["size"]] - 1L)
  } else if (!is.null(declared[["dates"]])) {
    paste(unlist(declared[["dates"]]), collapse = " to ")
  } else {
    ends <- range(unlist(declared[c("lower", "upper", "edges")]))
    paste(format(ends[1], scientific = FALSE), "to", format(ends[2], scientific = FALSE))
  }
  paste0(told, if (isTRUE(declared[["missing"]])) ", or no value")
}

#' @export
print.curator_dataset <- function(x, ...) {
  records <- if (is.na(x$records)) "number of records not public" else paste(figure(x$records), "records (public)")
  cat(sprintf(
    "%s: %s, %s; %s; epsilon %s of %s left\n", x$name, x$kind, records, x$privacy_unit, format(x$left),
    format(x$epsilon)
  ))
  if (nzchar(x$description)) cat(strwrap(x$description), sep = "\n")
  if (!is.null(x$attributes)) {
    rows <- cbind(x$attributes$name, x$attributes$values, ifelse(x$attributes$has_mean, "has a mean", ""))
    cat(aligned(rows), sep = "\n")
  }
  invisible(x)
}
