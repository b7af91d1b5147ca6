// Package pages reads rows from the raw pages of a SQLite database, without SQLite: of a
// file that is broken, whatever part of it is, and of one on a disk that takes no writes.
//
//	islet.db     ---.                                    .--> each cell --> a record: a row
//	                +--> the newest pages --not free------+
//	islet.db-wal ---'    (committed frames count)        '--> overflow pages
//
// Each page stands for itself: the rows on a page are read whether the page that leads
// there is intact or not, so that one broken page costs its own rows and those whose
// values go on there, and no more. Only tables WITHOUT ROWID are read, which are all that
// islet has; which table a row belongs to its shape says, which is for the caller to see.
// Pages on the list of free ones are left out: what was deleted stays deleted. But not
// those to which a page in use leads: then the list is broken, too.
//
// The format is that of https://www.sqlite.org/fileformat2.html. What is read is hostile:
// every number is checked, and nothing is read twice.
package pages
