// Package pulse distinguishes a lost peer of a TCP connection from a slow one. It also finds a peer that has closed its end
// of a connection whose data nobody reads.
//
//	the peer reads nothing, and its kernel acknowledges    slow: its time is not limited
//	the peer reads nothing, and nothing acknowledges       lost: its link is cut, or its machine is off
//
// The kernel of a running machine acknowledges each probe of a closed TCP window. So a peer whose program is stopped
// never counts as lost.
package pulse
