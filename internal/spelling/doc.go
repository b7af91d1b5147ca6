// Package spelling explains mistakes in manifests, configurations and commands. It suggests the word that a user probably meant:
//
//	a misspelled name + the known names --> Nearest --> the most similar name, or ""
//
// It is used for commands, flags and the fields of manifests and configurations. DescribeType describes a value of a wrong type.
package spelling
