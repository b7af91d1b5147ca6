// Package objects has the commands for manifests, and for the objects that they contain:
//
//	files, directories, standard input --> manifests --> check: the rules, without an agent
//	                                           |
//	                                           v
//	                                     apply, delete --> agent --> wait until the pods are ready or gone
//
//	agent --> ConfigMaps, Secrets, claims --> list, describe
package objects
