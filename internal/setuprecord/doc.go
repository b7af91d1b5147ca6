// Package setuprecord reads what the record of islet setup says to a user: why the islet.yaml of the boot partition is not in use. Package
// agent/cluster/setup writes the record.
package setuprecord
