// Package config combines everything that configures the agent into one validated, immutable
// Config. It reads files and the host's name, and has no other side effects.
//
//	defaults -> --config file -> --config-dir/*.conf -> flags ---+
//	            --edge-config file ---------------------> flags --+-> validate -> Config, []Notice
//
// Flags are bound to fields by a table (flags_table.go). Another table (fields_table.go) lists what
// each field does, or why it has no effect. docs/configuration.md is generated from both.
//
// A sent configuration comes from a ConfigMap or a person and may be meant for many nodes (Sent). Bound lists the fields
// that it cannot change without consent: local (bound.go) has those that differ per machine, and powers (power.go) those
// that give power over the node. Free lists the groups of other fields.
package config
