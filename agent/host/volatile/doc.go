// Package volatile lets the agent start on a read-only disk (EROFS: a card that the kernel has set read-only, a
// machine that booted read-only). It mounts an overlay in memory over each agent directory on such a disk. Paths do
// not change, so the rest of the agent is not affected.
//
//	RUN/volatile            a tmpfs, bounded
//	  <dir>/disk            the directory as the disk has it
//	  <dir>/upper, work     of the overlay that is mounted over the directory
//	  <dir>/apart/<n>       of the tmpfs, mounted over directories in the overlay
//
// The directories below apart contain the upper directories and layers of other overlays, such as those of
// containers. They cannot be in an overlay, which cannot be the upper directory of another one and does not show
// whiteouts. So their small files are copied to the tmpfs, and their subdirectories at the second level become
// symbolic links to the disk.
//
// A pod can fill the layer, but not the memory. Writes to a full layer fail as on a full disk, and a pod's writes are
// charged to its memory. All changes are lost at the next boot, after which the disk is as it was when it failed. A
// changed file is copied into memory completely. The layer stays until the machine boots or Uncover is called, even
// if the disk becomes writable again, because the data on the disk is then older than the agent's state.
package volatile
