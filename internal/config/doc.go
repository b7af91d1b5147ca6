// Package config makes one validated, immutable Config out of everything that
// may configure the agent. It reads files and the host's name and nothing else;
// it starts nothing.
//
//	defaults -> --config file -> --config-dir/*.conf -> flags ---+
//	            --edge-config file ---------------------> flags --+-> validate -> Config, []Notice
//
// Flags bind to fields by a table (flags_table.go); fields are listed in another
// (fields_table.go) with what they do here, or why they do nothing. The
// reference in docs/configuration.md is written from both.
package config
