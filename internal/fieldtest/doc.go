// Package fieldtest compares the pages that list every field of a Kubernetes API type with that
// type, for the tests of the packages that own the tables.
//
//	tables, in a package's test --Check--> each field of the type has a row, in the same order
//	        |                              the page in docs is generated from the tables
//	        '----------------------------> docs/pod-fields.md, docs/pod-status.md
package fieldtest
