// Package redaction removes secrets from texts and JSON values that a person sends to others.
//
//	text, or JSON value --Redactor--> the same with "REDACTED" in place of secrets
//	                        '-------> Counts: how many of which kind
//
// A Redactor recognizes secrets by their names, their format or their place. It prefers to remove too much. It cannot recognize a secret
// that looks like any other word, so output of programs in containers must not be passed to it, but left out.
package redaction
