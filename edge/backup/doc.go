// Package backup writes the identity and the state of a node to an archive, and puts them on the board that replaces the node's board.
//
//	islet backup:  agent, or a command while no agent runs
//	  islet.db --online copy--.
//	  store.key, records ------+--> Source.Write --> tar --> Copy --> sealed file (internal/bundle/sealed)
//	  certificates ------------|                       (checks each entry)
//	  configuration files -----'
//
//	islet restore:
//	  sealed file --> tar --> stage --> STATE/.restore/ --> checks: database, key, numbers, twin
//	                                          |
//	                                          v
//	                        plan.json, files beside their places (plan.commit)
//	                                          |
//	                                          v
//	                        STATE/restore.json: this rename decides; the renames of the plan follow
//
// Everything before the last step changes nothing that an agent reads, and Recover removes it. After that step, Recover completes the
// renames. Both islet restore and each start of the agent call Recover, so a power cut leaves either the board as it was or the whole
// node.
//
// # What is in an archive
//
// The first entry is the Manifest and the last one is empty, so an incomplete archive is an error. The other entries are regular files:
//
//	state/NAME      files of the state directory
//	cert/NAME       files of --cert-dir; links between them are in the Manifest
//	files/PATH      other files, by their absolute path
//
// # An archive is hostile
//
// Everybody who knows the public key of the office can seal an archive. So a reader limits the sizes, the number of entries and the names,
// accepts each name once, and writes regular files only. Files outside of the directories of the node and of /etc/islet and
// /etc/kubernetes need the consent of the user. The modes of files are reduced to read, write and execute.
package backup
