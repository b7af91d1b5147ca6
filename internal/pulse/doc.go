// Package pulse distinguishes a lost peer of a TCP connection from a slow one.
//
//	the peer reads nothing, and its kernel acknowledges    slow: it may take as long as it needs
//	the peer reads nothing, and nothing acknowledges       lost: its link is cut, or its machine is off
//
// The kernel of a running machine acknowledges each probe of a closed TCP window. So a machine with a stopped program
// never looks like a lost machine.
package pulse
