// Package backups runs the commands islet backup and islet restore. Package edge/backup has the archive.
//
//	islet backup:   the agent at the socket, or (without an agent) this process --tar--> checks --> sealed FILE
//	islet restore:  sealed FILE --tar--> edge/backup.Restore, with the state directory locked
//	start of the agent --Resume--> completes a restore that was interrupted
//
// A running agent has the database locked, so the agent makes the archive. It knows its configuration, too. Only the command seals: the
// archive leaves the agent through its socket, which only root can use, and the disk gets sealed bytes only.
package backups
