// Package pages reads rows from the raw pages of a SQLite database, without SQLite. It is used for a
// damaged file, and for a file on a read-only disk.
//
//	islet.db     ---.                                    .--> each cell --> a record: a row
//	                +--> the newest pages --not free------+
//	islet.db-wal ---'    (committed frames count)        '--> overflow pages
//
// Each page is read on its own, whether or not a page that refers to it is intact. So a damaged page loses
// only its own rows, and the rows that have an overflow page on it. Only tables WITHOUT ROWID are read. The
// databases of islet have no others. A row does not contain the name of its table. The caller recognizes
// the table by the row's columns. Free pages are skipped, so that deleted rows stay deleted. But a free
// page to which a page in use refers is read, because the free list is damaged then.
//
// The format is defined at https://www.sqlite.org/fileformat2.html. The input is not trusted. Every number
// is validated, and every loop is bounded.
package pages
