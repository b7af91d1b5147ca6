// Package redaction removes secrets from texts and JSON values that a person sends to others.
//
//	text, or JSON value --Redactor--> the same with "REDACTED" in place of secrets
//	                        '-------> Counts: how many of which kind
//
// A Redactor recognizes secrets by their names, their format or their place. In case of doubt it removes a value. It cannot recognize a
// secret that looks like an ordinary word. So callers must omit the output of programs in containers, instead of passing it to a
// Redactor.
package redaction
