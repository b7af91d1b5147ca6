// Package health says whether the node does its work: whether wanted pods are taken
// up, what runs is looked at, and pods can have a network.
package health
