// Package finding contains the result of checking manifests and configurations before they are used:
//
//	Files, and what a Node knows --> edge/check --> Report of Findings --> islet check, islet apply --dry-run
//
// The package has only types. The commands print their values as text, or as JSON for other
// programs.
package finding
