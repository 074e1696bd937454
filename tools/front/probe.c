/* tools/front/probe.c - can musl-gcc make the front? Compiled when the build is configured. */
#include <jansson.h>
#include <linux/btrfs.h>
#include <stdio.h>
#include <sys/ioctl.h>

int main(void)
{
	struct btrfs_ioctl_vol_args_v2 args = {.fd = 1};
	json_t *none = NULL;

	return none ? printf("%d\n", ioctl(0, BTRFS_IOC_SNAP_CREATE_V2, &args)) : 0;
}
