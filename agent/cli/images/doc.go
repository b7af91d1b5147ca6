// Package images has the commands for images and for disk space:
//
//	archives, registries --> import, pull --> agent --> progress, names
//	agent --> ls, df --> tables
//	prune, rm --> agent --> what was removed
package images
