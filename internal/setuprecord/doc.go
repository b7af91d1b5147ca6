// Package setuprecord reads the part of islet setup's record that commands show to users: the reason why the islet.yaml of the boot
// partition is not in use. Package agent/cluster/setup writes the record.
package setuprecord
