// Package pages reads rows from the raw pages of a SQLite database, without SQLite. It is used for a
// damaged file, and for a file on a read-only disk.
//
//	islet.db     ---.                                    .--> each cell --> a record: a row
//	                +--> the newest pages --not free------+
//	islet.db-wal ---'    (committed frames count)        '--> overflow pages
//
// Each page is read separately, even if the pages that refer to it are damaged. A damaged page therefore affects only the rows on this
// page, and the rows that have this page as an overflow page. Only tables WITHOUT ROWID are read. The databases of islet have no other
// tables. A row does not contain the name of its table, so the caller recognizes the table by the row's columns. Free pages are skipped,
// because they contain deleted rows. If a page in use refers to a page on the free list, the free list is damaged. That page is read
// although it is on the free list.
//
// The format is defined at https://www.sqlite.org/fileformat2.html. The input is not trusted. Every number is validated, and every loop
// is limited.
package pages
