// Package pulse tells a peer that has vanished from one that is slow.
//
//	the peer takes nothing, and its kernel answers       slow: it may take as long as it likes
//	the peer takes nothing, and nothing answers          lost: its link is cut, or its machine is off
//
// The kernel of a living machine acknowledges each probe of a window that is closed. A program
// that has stopped therefore never looks like a machine that has gone.
package pulse
