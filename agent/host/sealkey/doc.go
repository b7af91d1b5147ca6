// Package sealkey runs the commands islet key seal, status, unseal and recipient. They need no agent, and a running agent needs no
// restart, because it has the key in memory. There is one exception: if there is no key file, seal and recipient make a key only while no
// agent runs. A running agent may still use the key of a key file that was removed, and a second key would make its rows unreadable.
//
//	arguments --own flags--> Request --> edge/keyfile --> store.key
//	    |                                    |
//	    '--flags of the agent--> Place       |--> recovery key, on the terminal only
//	                                         '--> recipient: the public key for sealed Secrets
package sealkey
