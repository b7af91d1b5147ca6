// Package bundle makes a node use the configuration and run the pods of a signed bundle. It returns to the previous configuration and
// bundle if the configuration fails or the pods do not become Ready.
//
//	FILE or DIRECTORY --stage--> checks signatures, number, node, expiry and space, and writes nothing before
//	                               |     |
//	                               |     '-- a newer version of islet --> update.Updater tries it, then the bundle is applied again
//	                               v
//	         images (runtime/image) and STATE/bundles/sha256-HEX/: contents.json, manifest.json, signatures, files/
//	                               |
//	                               v
//	         STATE/bundle.json: trial  <-- this rename decides which bundle is in force
//	                               |
//	                               |      with a configuration, the bundle before stays in force until configure.Keeper has accepted it
//	                               v
//	 loop: folder of the bundle in force --decode--> the source "bundle" of edge/desired
//	                               |
//	                               v
//	         judge: pods are Ready --> the bundle becomes current, the former current bundle previous | deadline --> failed, current again
//
// STATE/bundle.json also names the configuration that the node must give up. Package trial reads that file, so a single rename gives up
// both the pods and the configuration of a bundle.
//
// The Record is a pure state machine. It is stored in a file outside the database, because a database that is restored from a backup must
// not change which bundle is in force. The package has a goroutine only while a bundle is in use.
//
// The packages below it:
//
//	feed    bundles on servers and in registries, and the followed source
//	medium  bundles on sticks
package bundle
