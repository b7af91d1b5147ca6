// Package config combines flags, configuration files and defaults into one validated, immutable
// Config. It reads files and the host's name, and has no other side effects.
//
//	defaults -> --config file -> --config-dir/*.conf -> flags ---+
//	            --edge-config file ---------------------> flags --+-> validate -> Config, []Notice
//
// Flags are bound to fields by a table (flags_table.go). Another table (fields_table.go) lists what
// each field does, or why it has no effect. docs/configuration.md is generated from both.
//
// A sent configuration (SentConfiguration) comes from a ConfigMap or a person and may be meant for many nodes. BoundFields lists the
// fields that such a configuration cannot change without consent. They are the fields that differ per machine (localFields in
// consent.go), and the fields that give power over the node (powerFields in power_fields.go). FreeGroups lists all other fields, in groups.
package config
