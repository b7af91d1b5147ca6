// Package tree copies directories whose content an image has chosen.
//
//	image's directory --Copy--> directory of a container's own
//	                    |
//	                  Room: bytes and files that the copies may still take, and the space that
//	                        must stay free meanwhile, whoever else writes
//
// The source is hostile: it may be deep, wide, large, and full of links. Copy follows no
// link, reads a directory in parts, keeps a bounded list of hard links, and stops when its
// context ends.
package tree
