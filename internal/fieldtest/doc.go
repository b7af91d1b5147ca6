// Package fieldtest holds the pages that list every field of types of the Kubernetes API
// against the types, for the tests of the rooms whose tables they are.
//
//	tables, in a room's test --Check--> each field of the type has a row, in its order
//	        |                            the page in docs is what the tables say
//	        '----------------------------> docs/pod-fields.md, docs/pod-status.md
package fieldtest
