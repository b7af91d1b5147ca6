// Package tree copies directories whose content an image controls.
//
//	image's directory --Copy--> directory of a container's own
//	                    |
//	                  Room: bytes and files that the copies may still use, and the space that
//	                        must stay free meanwhile, whoever else writes
//
// The source is hostile: it may be deep, wide, large and full of links. Copy follows no symlink,
// reads directories in parts, tracks a limited number of hard links, and stops when its context
// ends.
package tree
