// Package printable makes text of untrusted origin safe to show:
//
//	names and messages of manifests, containers, programs and servers --> Line --> a terminal
//	                                                                  '-> Cut ---> logs, events and messages, with a maximum length
//
// Control characters could change the state of a terminal. Other characters change the direction of the text around them.
package printable
