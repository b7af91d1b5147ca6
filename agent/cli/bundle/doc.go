// Package bundle has the commands for bundles, the signed files with all that a node should run:
//
//	office:  manifests, images --> lock, build --> bundle --> sign, verify, show, diff
//	         Secrets, key of a node --> seal --> manifests
//	         states of nodes --> collect --> table
//	node:    bundle --> apply, status, revert --> agent
//	         agent --> node: the description for seal and verify
//
// Its rules are in internal/bundle.
package bundle
