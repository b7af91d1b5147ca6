// Package tree copies directories with untrusted content, such as the directories of an image.
//
//	directory of an image --Copy--> directory of a container
//	                        |
//	                      Room: bytes and files that the copies may use, and the space that
//	                            must stay free
//
// The source may be deep, wide, large and full of links. Copy does not follow symlinks, reads
// directories in parts, tracks a limited number of hard links, and stops when its context ends.
package tree
