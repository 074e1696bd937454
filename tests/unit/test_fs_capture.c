/* tests/unit/test_fs_capture.c - outputs, whatever an action did to them */
#include "tests/lib/tests.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cas/cas.h"
#include "cas/reapi.pb-c.h"
#include "tests/lib/box.h"
#include "tests/lib/store.h"

#define TREE                                                                                       \
	"mkdir -p src/lib tools; echo c >src/a.c; echo h >src/lib/h; echo t >tools/t; ln -s a.c src/l"

struct fixture {
	struct tests_box box;
	struct cas_digest root;
	const char *path;
	json_t *answer;
	int ret;
};

#define OUTPUTS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void begin(struct fixture *f, void **state, enum fs_writable w, const char *const *outputs)
{
	memset(f, 0, sizeof(*f));
	tests_box_open(&f->box, *state);
	f->root = tests_box_tree(&f->box, TREE);
	f->path = strdup(tests_box_create(&f->box, "s", &f->root, w, outputs));
}

static void act(struct fixture *f, const char *script)
{
	assert_int_equal(tests_sh(f->path, script), 0);
	f->ret = tests_box_finish(&f->box, "s", &f->answer);
}

static void end(struct fixture *f)
{
	json_decref(f->answer);
	free((char *)f->path);
	tests_box_close(&f->box);
}

static const char *output(struct fixture *f, const char *path)
{
	return tests_answer_output(f->answer, path);
}

/* The digest text of what a script makes in an empty directory. */
static const char *tree_text(struct fixture *f, const char *script)
{
	static char ring[4][CAS_DIGEST_STR_SZ];
	static int next;
	struct cas_digest d = tests_box_tree(&f->box, script);

	return cas_digest_format(&d, '/', ring[next++ % 4]);
}

static const char *file_text(const char *content)
{
	static char text[CAS_DIGEST_STR_SZ];
	struct cas_digest d;

	assert_int_equal(cas_hash_bytes(content, strlen(content), &d), 0);
	return cas_digest_format(&d, '/', text);
}

static void test_output_beside_inputs_is_captured_alone(void **state)
{
	struct fixture f;

	begin(&f, state, FS_WRITABLE_OUTPUTS, OUTPUTS("src/a.o", "src/lib/x.o"));
	act(&f, "echo o >src/a.o; chmod +x src/a.o; echo stray >src/log; cat src/a.c >src/lib/x.o");
	assert_int_equal(f.ret, 0);
	assert_string_equal(output(&f, "src/a.o"), file_text("o\n"));
	assert_string_equal(output(&f, "src/lib/x.o"), file_text("c\n"));
	assert_int_equal(json_array_size(json_object_get(f.answer, "outputs")), 2);
	assert_true(tests_answer_has(f.answer, "stray", "src/log"));
	assert_int_equal(json_array_size(json_object_get(f.answer, "stray")), 1);
	assert_int_equal(json_array_size(json_object_get(f.answer, "failed")), 0);
	end(&f);
}

/* More Directories than are put together. */
static void test_output_of_many_directories_is_whole(void **state)
{
	const char *script = "for i in $(seq 150); do mkdir -p d$i/e; echo $i >d$i/e/f; done";
	struct fixture f;

	begin(&f, state, FS_WRITABLE_OUTPUTS, OUTPUTS("out"));
	act(&f,
	    "mkdir out; cd out; for i in $(seq 150); do mkdir -p d$i/e; echo $i >d$i/e/f; done");
	assert_int_equal(f.ret, 0);
	assert_string_equal(output(&f, "out"), tree_text(&f, script));
	end(&f);
}

static void test_nothing_can_be_written_beside_the_areas(void **state)
{
	struct fixture f;

	begin(&f, state, FS_WRITABLE_OUTPUTS, OUTPUTS("out/deep/f"));
	/* The stand-in for session one is writable; the layer must not reach above out/. */
	assert_int_equal(tests_count_names(tests_path(f.path, "out")), 1);
	act(&f, "echo 1 >out/deep/f; echo 2 >out/other");
	assert_string_equal(output(&f, "out/deep/f"), file_text("1\n"));
	assert_true(tests_answer_has(f.answer, "stray", "out/other"));
	end(&f);
}

/* C05: a declared directory replaced in every way. */
static void replaced(void **state, const char *script, const char *want)
{
	struct fixture f;

	begin(&f, state, FS_WRITABLE_OUTPUTS, OUTPUTS("out", "src/gen"));
	act(&f, script);
	assert_int_equal(f.ret, 0);
	assert_string_equal(output(&f, "out"), want ? want : tree_text(&f, "echo new >f"));
	end(&f);
}

static void test_c05_output_directory_made_again(void **state)
{
	replaced(state, "mkdir out; echo old >out/o; rm -r out; mkdir out; echo new >out/f", NULL);
}

static void test_c05_output_directory_moved_into_place(void **state)
{
	replaced(state, "mkdir out tmp.1; echo new >tmp.1/f; rmdir out; mv tmp.1 out", NULL);
}

static void test_c05_output_directory_moved_away_first(void **state)
{
	replaced(state, "mkdir out; echo old >out/f; mv out old; mkdir out; echo new >out/f", NULL);
}

static void test_c05_output_directory_becomes_a_symlink(void **state)
{
	replaced(state, "mkdir out src/gen; echo x >src/gen/x; rm -r out; ln -s src/gen out",
		 "-> src/gen");
}

static void test_c05_parent_of_output_made_again(void **state)
{
	struct fixture f;

	/* Without redirects a merged directory does not move. */
	if (tests_box_in_userns())
		skip();
	begin(&f, state, FS_WRITABLE_ALL, OUTPUTS("p/out/", "p/q"));
	act(&f, "echo old >p/out/f; mv p gone; mkdir -p p/out; echo new >p/out/f");
	assert_int_equal(f.ret, 0);
	assert_string_equal(output(&f, "p/out"), tree_text(&f, "echo new >f"));
	assert_string_equal(output(&f, "p/q"), "");
	end(&f);
}

static void test_premade_output_cannot_be_removed(void **state)
{
	struct fixture f;

	begin(&f, state, FS_WRITABLE_OUTPUTS, OUTPUTS("out/", "src/obj/", "out/sub/"));
	act(&f, "! rmdir src/obj; ! rm -r out 2>/dev/null; mkdir -p out/sub; test -d out/sub;"
		"echo 1 >out/1; echo 2 >out/sub/2; echo 3 >src/obj/3");
	assert_string_equal(output(&f, "out"),
			    tree_text(&f, "mkdir sub; echo 1 >1; echo 2 >sub/2"));
	assert_string_equal(output(&f, "out/sub"), tree_text(&f, "echo 2 >2"));
	assert_string_equal(output(&f, "src/obj"), tree_text(&f, "echo 3 >3"));
	end(&f);
}

/* C20: links are data, at the top and below. */
static void test_c20_symlinks_are_kept_verbatim(void **state)
{
	struct fixture f;
	const char *make =
		"ln -s missing l1; ln -s /abs l2; ln -s l3 l3; mkdir subdir; ln -s subdir l4;"
		"ln -s ../sibling l5; ln -s $(printf %04000d 0) long";
	char script[1024];

	(void)snprintf(
		script, sizeof(script),
		"mkdir d; cd d; %s; cd ..; rmdir tod; ln -s d tod; ln -s d/f tof; ln -s nowhere ton",
		make);
	begin(&f, state, FS_WRITABLE_OUTPUTS, OUTPUTS("d", "tod", "tof", "ton", "tod/l1"));
	act(&f, script);
	assert_string_equal(output(&f, "d"), tree_text(&f, make));
	assert_string_equal(output(&f, "tod"), "-> d");
	assert_string_equal(output(&f, "tof"), "-> d/f");
	assert_string_equal(output(&f, "ton"), "-> nowhere");
	assert_string_equal(output(&f, "tod/l1"), "");
	end(&f);
}

/* C21: overlapping and odd spellings. */
static void test_c21_overlapping_outputs_agree(void **state)
{
	struct fixture f;
	struct cas_digest shown;
	char want[CAS_DIGEST_STR_SZ];

	begin(&f, state, FS_WRITABLE_OUTPUTS,
	      OUTPUTS("d", "d/f", "d//sub", "d/../e", "d", "./d/", "", "src/a.c", "tools"));
	assert_int_equal(
		tests_sh(f.path, "mkdir -p d/sub; echo f >d/f; echo s >d/sub/s; echo e >e"), 0);
	shown = tests_box_ingest(&f.box, f.path);
	act(&f, "true");
	assert_string_equal(output(&f, "d/f"), file_text("f\n"));
	assert_string_equal(output(&f, "e"), file_text("e\n"));
	assert_string_equal(output(&f, "d"), tree_text(&f, "mkdir sub; echo f >f; echo s >sub/s"));
	assert_string_equal(output(&f, "d/sub"), tree_text(&f, "echo s >s"));
	assert_string_equal(output(&f, ""), cas_digest_format(&shown, '/', want));
	assert_string_equal(output(&f, "src/a.c"), file_text("c\n"));
	assert_string_equal(output(&f, "tools"), tree_text(&f, "echo t >t"));
	assert_int_equal(json_array_size(json_object_get(f.answer, "outputs")), 7);
	end(&f);
}

/* C22: whatever is found is reported, the rest is captured. */
static void test_c22_wrong_kinds_and_missing(void **state)
{
	struct fixture f;

	begin(&f, state, FS_WRITABLE_OUTPUTS,
	      OUTPUTS("o/file", "o/dir", "o/missing", "o/fifo", "o/d2", "o/below/x"));
	act(&f,
	    "mkdir o/file; echo 1 >o/file/1; echo d >o/dir; mkfifo o/fifo; rm -rf o/below; echo >o/below;"
	    "mkdir o/d2; mkfifo o/d2/p; echo k >o/d2/k");
	assert_int_equal(f.ret, 0);
	assert_string_equal(output(&f, "o/file"), tree_text(&f, "echo 1 >1"));
	assert_string_equal(output(&f, "o/dir"), file_text("d\n"));
	assert_string_equal(output(&f, "o/missing"), "");
	assert_string_equal(output(&f, "o/fifo"), "");
	assert_string_equal(output(&f, "o/below/x"), "");
	assert_string_equal(output(&f, "o/d2"), tree_text(&f, "echo k >k"));
	assert_true(tests_answer_has(f.answer, "failed", "o/fifo"));
	assert_true(tests_answer_has(f.answer, "failed", "o/d2/p"));
	assert_int_equal(json_array_size(json_object_get(f.answer, "failed")), 2);
	end(&f);
}

static void test_names_that_no_tree_can_hold_are_listed(void **state)
{
	struct fixture f;

	begin(&f, state, FS_WRITABLE_OUTPUTS, OUTPUTS("o"));
	act(&f,
	    "mkdir o; echo >o/$(printf '\\377\\376'); echo 1 >o/1; echo >o/\"$(printf 'new\\nline')\"");
	assert_string_equal(output(&f, "o"),
			    tree_text(&f, "echo 1 >1; echo >\"$(printf 'new\\nline')\""));
	assert_int_equal(json_array_size(json_object_get(f.answer, "failed")), 1);
	assert_true(tests_answer_has(f.answer, "failed", "o/\\xff\\xfe"));
	end(&f);
}

static void test_changed_input_fails_by_name(void **state)
{
	struct fixture f;

	begin(&f, state, FS_WRITABLE_OUTPUTS, OUTPUTS("src/a.o"));
	act(&f, "echo o >src/a.o; echo changed >src/a.c; rm src/lib/h; chmod 600 src/l");
	assert_int_equal(f.ret, -EROFS);
	assert_true(tests_answer_has(f.answer, "changed", "src/a.c"));
	assert_true(tests_answer_has(f.answer, "changed", "src/lib/h"));
	assert_int_equal(json_array_size(json_object_get(f.answer, "changed")), 2);
	assert_string_equal(output(&f, "src/a.o"), file_text("o\n"));
	/* The second time says the same. */
	json_decref(f.answer);
	f.ret = tests_box_finish(&f.box, "s", &f.answer);
	assert_int_equal(f.ret, -EROFS);
	assert_true(tests_answer_has(f.answer, "changed", "src/a.c"));
	end(&f);
}

static void test_touched_or_restored_inputs_are_no_change(void **state)
{
	struct fixture f;

	begin(&f, state, FS_WRITABLE_OUTPUTS, OUTPUTS("src/a.o"));
	act(&f,
	    "touch src/a.c; mv src/lib src/x; mv src/x src/lib; echo h >src/lib/h; chmod 755 src;"
	    "ln -s a.c src/l2; mv src/l2 src/l");
	assert_int_equal(f.ret, 0);
	assert_int_equal(json_array_size(json_object_get(f.answer, "stray")), 0);
	end(&f);
}

static void test_input_as_output_may_change_or_go(void **state)
{
	struct fixture f;

	begin(&f, state, FS_WRITABLE_OUTPUTS, OUTPUTS("src/a.c", "src/lib"));
	act(&f, "echo new >src/a.c; rm -r src/lib");
	assert_int_equal(f.ret, 0);
	assert_string_equal(output(&f, "src/a.c"), file_text("new\n"));
	assert_string_equal(output(&f, "src/lib"), "");
	/* What is shown afterwards: the inputs with the outputs in place. */
	assert_int_equal(
		tests_sh(f.path,
			 "test \"$(cat src/a.c)\" = new; ! test -e src/lib; test -e tools/t"),
		0);
	end(&f);
}

static void test_dirs_policy_takes_new_names_but_no_changes(void **state)
{
	struct fixture f;

	begin(&f, state, FS_WRITABLE_DIRS, OUTPUTS("src/o"));
	act(&f, "echo n >tools/new; mkdir q; echo o >src/o; rm tools/t");
	assert_int_equal(f.ret, -EROFS);
	assert_true(tests_answer_has(f.answer, "changed", "tools/t"));
	assert_int_equal(json_array_size(json_object_get(f.answer, "stray")), 0);
	assert_string_equal(output(&f, "src/o"), file_text("o\n"));
	end(&f);
}

/* Somebody who outlives the action and keeps writing: outputs are copied, not moved. */
static void test_leftover_writer_does_not_reach_the_store(void **state)
{
	struct fixture f;
	const char *blob;
	struct cas_digest d;
	struct stat st;
	int fd;
	int was;

	begin(&f, state, FS_WRITABLE_OUTPUTS, OUTPUTS("out/"));
	fd = open(tests_path(f.path, "out/f"), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, "before", 6), 6);
	was = fcntl(fd, F_GETFD);
	assert_true(was >= 0);
	act(&f, "echo two >out/g");
	assert_int_equal(pwrite(fd, "AFTER!", 6, 0), 6);
	assert_int_equal(close(fd), 0);
	assert_int_equal(cas_hash_bytes("before", 6, &d), 0);
	tests_assert_blob(f.box.store, &d, "before", 6);
	blob = tests_blob_path(f.box.dir, &d);
	assert_int_equal(stat(blob, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0444);
	end(&f);
}

static void swap_for_ever(const char *dir)
{
	if (chdir(dir) < 0)
		_exit(1);
	for (;;) {
		(void)rename("d", "real");
		(void)symlink("../../../outside", "d");
		(void)unlink("d");
		(void)rename("real", "d");
	}
}

/* A process that was left behind plays with links while its outputs are captured. */
static void test_links_swapped_during_capture_lead_nowhere(void **state)
{
	struct fixture f;
	struct cas_digest secret;
	const char *outside;
	pid_t pid;

	begin(&f, state, FS_WRITABLE_OUTPUTS, OUTPUTS("out/"));
	outside = tests_path(f.box.dir, "outside");
	assert_int_equal(mkdir(outside, 0755), 0);
	tests_write_file(tests_path(outside, "f0"), "secret", 6, 0644);
	assert_int_equal(
		tests_sh(
			f.path,
			"mkdir out/d; i=0; while [ $i -lt 300 ]; do echo $i >out/d/f$i; i=$((i+1)); done"),
		0);
	pid = fork();
	if (pid == 0)
		swap_for_ever(tests_path(f.path, "out"));
	assert_true(pid > 0);
	(void)usleep(20000);
	act(&f, "true");
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_string_not_equal(output(&f, "out"), "");
	assert_int_equal(cas_hash_bytes("secret", 6, &secret), 0);
	assert_int_equal(cas_store_has(f.box.store, &secret), 0);
	end(&f);
}

/* The store fails in the middle: nothing of the outputs is lost, and finish works later. */
static void test_capture_that_failed_can_be_repeated(void **state)
{
	struct fixture f;
	struct fs_finish_spec spec = {0};
	struct cas_digest lib;
	const char *blob;
	const char *aside;
	struct err err = {0};

	begin(&f, state, FS_WRITABLE_OUTPUTS, OUTPUTS("", "src/new"));
	lib = tests_box_tree(&f.box, "echo h >h");
	blob = tests_blob_path(f.box.dir, &lib);
	aside = tests_path(f.box.dir, "aside");
	assert_int_equal(tests_sh(f.path, "echo new >src/new; chmod 750 src/new"), 0);
	assert_int_equal(rename(blob, aside), 0);
	assert_int_equal(fs_sandbox_finish(f.box.all, "s", &spec, &f.answer, &err), -ENOENT);
	assert_int_equal(rename(aside, blob), 0);
	f.ret = tests_box_finish(&f.box, "s", &f.answer);
	assert_int_equal(f.ret, 0);
	assert_string_equal(output(&f, "src/new"), file_text("new\n"));
	assert_string_equal(output(&f, ""),
			    tree_text(&f, TREE "; echo new >src/new; chmod 750 src/new"));
	end(&f);
}

/* So is a finish that nobody waits for any more: the next one does all. */
static void test_capture_that_was_left_can_be_repeated(void **state)
{
	struct fixture f;
	_Atomic bool left = true;
	struct fs_finish_spec spec = {.left = &left, .remove = true};
	struct err err = {0};

	begin(&f, state, FS_WRITABLE_OUTPUTS, OUTPUTS("", "src/new"));
	assert_int_equal(tests_sh(f.path, "echo new >src/new; chmod 750 src/new"), 0);
	assert_int_equal(fs_sandbox_finish(f.box.all, "s", &spec, &f.answer, &err), -ECANCELED);
	assert_non_null(strstr(err.msg, "who asked for it has gone"));
	assert_null(f.answer);
	left = false;
	f.ret = tests_box_finish(&f.box, "s", &f.answer);
	assert_int_equal(f.ret, 0);
	assert_string_equal(output(&f, "src/new"), file_text("new\n"));
	assert_string_equal(output(&f, ""),
			    tree_text(&f, TREE "; echo new >src/new; chmod 750 src/new"));
	end(&f);
}

static void test_result_is_a_whole_action_result(void **state)
{
	struct fixture f;
	struct fs_finish_spec spec = {.exit_code = 3, .start_ns = 1000000000, .end_ns = 2500000000};
	auto_buf struct buf data = {0};
	Reapi__ActionResult *r;
	json_t *result;

	begin(&f, state, FS_WRITABLE_OUTPUTS, OUTPUTS("out/", "src/x"));
	assert_int_equal(tests_sh(f.path, "echo 1 >out/1; echo '#' >src/x; chmod +x src/x"), 0);
	assert_int_equal(cas_put_bytes(f.box.store, "hello", 5, &spec.stdout_digest, NULL), 0);
	spec.has_stdout = true;
	assert_int_equal(fs_sandbox_finish(f.box.all, "s", &spec, &f.answer, NULL), 0);
	assert_int_equal(io_read_file(AT_FDCWD,
				      json_string_value(json_object_get(f.answer, "result_file")),
				      1 << 20, &data),
			 0);
	r = reapi__action_result__unpack(NULL, data.len, (uint8_t *)data.data);
	assert_non_null(r);
	assert_int_equal(r->exit_code, 3);
	assert_int_equal(r->n_output_files, 1);
	assert_string_equal(r->output_files[0]->path, "src/x");
	assert_true(r->output_files[0]->is_executable);
	assert_int_equal(r->n_output_directories, 1);
	assert_true(r->output_directories[0]->is_topologically_sorted);
	assert_int_equal(r->stdout_digest->size_bytes, 5);
	assert_int_equal(r->execution_metadata->execution_completed_timestamp->nanos, 500000000);
	reapi__action_result__free_unpacked(r, NULL);
	result = json_object_get(f.answer, "result");
	assert_int_equal(json_integer_value(json_object_get(result, "exitCode")), 3);
	assert_string_equal(
		json_string_value(json_object_get(json_object_get(result, "executionMetadata"),
						  "executionCompletedTimestamp")),
		"1970-01-01T00:00:02.500Z");
	assert_string_equal(json_string_value(json_object_get(
				    json_object_get(result, "stdoutDigest"), "sizeBytes")),
			    "5");
	end(&f);
}

static int finish_remove(struct fixture *f, struct err *err)
{
	struct fs_finish_spec spec = {.exit_code = 7, .remove = true};

	json_decref(f->answer);
	f->answer = NULL;
	return fs_sandbox_finish(f->box.all, "s", &spec, &f->answer, err);
}

/* The answer is a finish's, but for the file, and the sandbox is gone as by remove. */
static void test_finish_may_take_the_sandbox_along(void **state)
{
	struct fixture f;
	struct cas_digest digest;
	uint64_t serial;
	struct stat st;

	begin(&f, state, FS_WRITABLE_OUTPUTS, OUTPUTS("out/", "src/x"));
	assert_int_equal(tests_sh(f.path, "echo 1 >out/1; echo x >src/x; echo y >src/stray"), 0);
	assert_int_equal(finish_remove(&f, NULL), 0);
	assert_string_equal(output(&f, "src/x"), file_text("x\n"));
	assert_string_equal(output(&f, "out"), tree_text(&f, "echo 1 >1"));
	assert_true(tests_answer_has(f.answer, "stray", "src/stray"));
	assert_int_equal(json_integer_value(
				 json_object_get(json_object_get(f.answer, "result"), "exitCode")),
			 7);
	assert_null(json_object_get(f.answer, "result_file"));
	assert_int_equal(cas_hash_bytes("x\n", 2, &digest), 0);
	assert_int_equal(cas_store_has(f.box.store, &digest), 1);
	assert_int_equal(fs_sandboxes_lookup(f.box.all, "s", &digest, &serial), 0);
	assert_int_equal(fs_sandboxes_count(f.box.all), 0);
	assert_int_equal(stat(tests_path(f.box.dir, "store/sandboxes/s"), &st), -1);
	assert_int_equal(finish_remove(&f, NULL), -ENOENT);
	end(&f);
}

static void test_finish_that_failed_takes_nothing_along(void **state)
{
	struct fixture f;
	struct err err = {0};
	struct stat st;

	begin(&f, state, FS_WRITABLE_DIRS, OUTPUTS("src/x"));
	assert_int_equal(tests_sh(f.path, "echo x >src/x; echo other >src/a.c"), 0);
	assert_int_equal(finish_remove(&f, &err), -EROFS);
	assert_non_null(strstr(err.msg, "src/a.c"));
	assert_true(tests_answer_has(f.answer, "changed", "src/a.c"));
	assert_int_equal(stat(json_string_value(json_object_get(f.answer, "result_file")), &st), 0);
	assert_int_equal(fs_sandboxes_count(f.box.all), 1);
	assert_int_equal(finish_remove(&f, NULL), -EROFS);
	assert_int_equal(fs_sandbox_remove(f.box.all, "s", NULL), 0);
	end(&f);
}

/* It was finished before; now it goes, with the same answer. */
static void test_finished_sandbox_goes_with_its_answer(void **state)
{
	struct fixture f;
	json_t *first;

	begin(&f, state, FS_WRITABLE_OUTPUTS, OUTPUTS("out/"));
	act(&f, "echo 1 >out/1");
	assert_int_equal(f.ret, 0);
	first = json_incref(f.answer);
	assert_int_equal(finish_remove(&f, NULL), 0);
	assert_true(
		json_equal(json_object_get(first, "result"), json_object_get(f.answer, "result")));
	json_decref(first);
	assert_int_equal(fs_sandboxes_count(f.box.all), 0);
	end(&f);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TESTS_IN_DIR(test_output_beside_inputs_is_captured_alone),
		TESTS_IN_DIR(test_output_of_many_directories_is_whole),
		TESTS_IN_DIR(test_nothing_can_be_written_beside_the_areas),
		TESTS_IN_DIR(test_c05_output_directory_made_again),
		TESTS_IN_DIR(test_c05_output_directory_moved_into_place),
		TESTS_IN_DIR(test_c05_output_directory_moved_away_first),
		TESTS_IN_DIR(test_c05_output_directory_becomes_a_symlink),
		TESTS_IN_DIR(test_c05_parent_of_output_made_again),
		TESTS_IN_DIR(test_premade_output_cannot_be_removed),
		TESTS_IN_DIR(test_c20_symlinks_are_kept_verbatim),
		TESTS_IN_DIR(test_c21_overlapping_outputs_agree),
		TESTS_IN_DIR(test_c22_wrong_kinds_and_missing),
		TESTS_IN_DIR(test_names_that_no_tree_can_hold_are_listed),
		TESTS_IN_DIR(test_changed_input_fails_by_name),
		TESTS_IN_DIR(test_touched_or_restored_inputs_are_no_change),
		TESTS_IN_DIR(test_input_as_output_may_change_or_go),
		TESTS_IN_DIR(test_dirs_policy_takes_new_names_but_no_changes),
		TESTS_IN_DIR(test_leftover_writer_does_not_reach_the_store),
		TESTS_IN_DIR(test_links_swapped_during_capture_lead_nowhere),
		TESTS_IN_DIR(test_capture_that_failed_can_be_repeated),
		TESTS_IN_DIR(test_capture_that_was_left_can_be_repeated),
		TESTS_IN_DIR(test_result_is_a_whole_action_result),
		TESTS_IN_DIR(test_finish_may_take_the_sandbox_along),
		TESTS_IN_DIR(test_finish_that_failed_takes_nothing_along),
		TESTS_IN_DIR(test_finished_sandbox_goes_with_its_answer),
	};
	int status;

	if (tests_box_main(argc, argv, &status))
		return status;
	return tests_box_again(cmocka_run_group_tests_name("fs_capture", tests, NULL, NULL));
}
