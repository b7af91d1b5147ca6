// Package fieldtest compares a Kubernetes API type with the page that lists all its fields. The
// tests of the packages that own the tables use it.
//
//	tables, in a package's test --Check--> each field of the type has a row, in the same order
//	        |                              the page in docs is generated from the tables
//	        '----------------------------> docs/pod-fields.md, docs/pod-status.md
package fieldtest
