// Package finding contains the result of checking manifests and configurations before they are used:
//
//	Files, and what a Node knows --> edge/check --> Report of Findings --> islet check, islet apply --dry-run
//
// The package has only types. The commands print them, and programs read them as JSON.
package finding
