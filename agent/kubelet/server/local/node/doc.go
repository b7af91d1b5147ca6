// Package node serves the paths of the local socket about the whole node.
//
//	islet config, update, bundle -------POST--> Configurer, Updater, BundleTrials --> a trial, progress
//	islet accept, takeover, shutdown ---POST--> Accept, TakeOver, Shutdown
//	islet events, clock, devices, top --GET---> Events, Clock, Devices, Usage
//	islet bundle, key ------------------GET---> BundleNode --> facts about the node, its public key
//
// The package decodes requests and encodes results. The interfaces do the work.
package node
