// Package apparmor selects the AppArmor profile of a container as other CRI runtimes do: the node's
// default profile if none is requested, and an error if the requested one cannot be enforced.
//
//	securityfs, apparmor_parser --> Host --Profile(security context)--> a name, "" or an error
//	                                   '--try: load the default profile, again if it was removed
//
// https://kubernetes.io/docs/tutorials/security/apparmor/
package apparmor
