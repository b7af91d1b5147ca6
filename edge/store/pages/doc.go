// Package pages reads rows from the raw pages of a SQLite database, without SQLite: from a
// damaged file, and from a file on a read-only disk.
//
//	islet.db     ---.                                    .--> each cell --> a record: a row
//	                +--> the newest pages --not free------+
//	islet.db-wal ---'    (committed frames count)        '--> overflow pages
//
// Each page is read on its own, whether or not the page that refers to it is intact. So a damaged
// page loses its own rows, and those whose overflow pages it has. Only tables WITHOUT ROWID are
// read; islet has no others. A row does not name its table, so the caller recognizes the table by
// the row's columns. Free pages are skipped, so that deleted rows stay deleted, except for those
// that a page in use refers to: then the free list is damaged too.
//
// The format is defined at https://www.sqlite.org/fileformat2.html. The input is not trusted:
// every number is validated, and every loop is bounded.
package pages
