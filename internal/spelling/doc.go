// Package spelling suggests the word that a user probably meant:
//
//	a misspelled name + the known names --> Nearest --> the most similar name, or ""
//
// It is used for commands, flags and the fields of manifests and configurations.
package spelling
