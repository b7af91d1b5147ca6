// Package setup makes a flashed board a node with one file, islet.yaml on the boot partition of its card.
//
//	/boot/firmware/islet.yaml --Board--> name, flags, settings, credentials --check--> targets --> /etc/islet/NAME.setup, synced
//	                                                                                                          |
//	   STATE/setup.json: the record, with the paths of all targets  <----- one rename: from here on all ------'
//	                               |
//	                               renames
//	                               |
//	                               v
//	   /etc/islet: flags, kubelet.yaml, edge.yaml, ca.crt, bootstrap.kubeconfig or kubeconfig
//	                               |
//	                               v
//	   the agent starts as on every other node
//	                               |
//	   Watch: the link is up, so the node has its certificate --> the secrets in islet.yaml are overwritten
//
// The command islet setup runs before each start of the service. The record has the digest of the file that was applied, and the digests of
// the files next to it that it names. If one of these files has changed, islet setup applies islet.yaml again. The digest of islet.yaml
// does not cover the secrets, so it stays the same when they are removed. A board that has joined keeps its name and its cluster. A board
// that has joined by the command islet join also keeps the fields that islet join has set. If a power cut has ended islet join, islet setup
// completes the files of islet join before it compares islet.yaml with them.
//
// # Power cuts
//
// All targets are staged and synced before the record names them, so a full disk changes nothing. A run that finds targets in the record
// renames them all, so after a power cut either all of them are in place or none. If a target replaces a file that this package did not
// make, the record keeps the old file as the base of the target. A later islet.yaml without these settings restores the base.
//
// The secrets are overwritten in place, by as many underscores. No file is created or renamed. On a FAT file system, neither the directory
// entry nor the table changes, and the old bytes do not stay in a free cluster. After a power cut, a part of a secret may remain. The next
// run overwrites all of it.
//
// # Mistakes
//
// A mistake is written to standard error, into the record and, once until it changes or the machine boots, to the console of the machine.
// The LED of the board gets the trigger heartbeat. The agent starts with its previous settings. No failure of the disk stops the agent. If
// the disk fails between two renames, the agent starts with a part of the targets, Watch does nothing, and the next run completes them.
//
// Files with which the agent could not start on this machine, for example because swap is on, are a mistake too. If the agent cannot start
// with the files in use, because the machine or a file has changed since, the run applies islet.yaml again. If the agent could not start
// afterwards either, or if islet.yaml is missing, each run reports the reason in the same way.
package setup
