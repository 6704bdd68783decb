# frozen_string_literal: true

require "fileutils"
require "tmpdir"

require_relative "../serving"

class SendfileTest < Minitest::Test
  include Serving

  def setup
    @folder = Dir.mktmpdir
    FileUtils.mkdir_p(File.join(@folder, "files/deep"))
    File.write(File.join(@folder, "files/deep/a.txt"), "from the folder")
    File.write(File.join(@folder, "secret.txt"), "secret")
    File.symlink("../secret.txt", File.join(@folder, "files/link.txt"))
  end

  def teardown
    super
    FileUtils.rm_rf(@folder)
  end

  def files
    File.join(@folder, "files")
  end

  # Serves an application that names `path` in the field.
  def get_named(field, path, sendfile)
    headers = { field => path, "content-type" => "text/plain" }
    serve(sendfile: sendfile) { [200, headers, ["not this"]] }
    get
  end

  def test_a_file_in_a_declared_folder_is_sent
    response = get_named("X-Sendfile", File.join(files, "deep/a.txt"), [[files, files]])
    assert_equal ["from the folder", "15", nil],
                 [response.body, response["content-length"], response["x-sendfile"]]
  end

  def test_a_prefix_stands_for_a_folder
    response = get_named("X-Accel-Redirect", "/private/deep/a.txt", [["/private", files]])
    assert_equal "from the folder", response.body
  end

  def test_what_lies_outside_is_not_there
    ["#{files}/../secret.txt", "#{files}/link.txt", "#{@folder}/secret.txt", "#{files}-other/a",
     "#{files}/none", "#{files}/deep", "/etc/passwd"].each do |path|
      said = stderr_of do
        assert_equal 404, get_named("x-sendfile", path, [[files, files]]).status, path
      end
      assert_includes said, path
    end
  end

  def test_the_body_of_an_application_that_names_no_file_is_closed
    closed = Queue.new
    body = ["not this"].each
    body.define_singleton_method(:close) { closed << true }
    serve(sendfile: [[files, files]]) { [200, { "x-sendfile" => "#{files}/none" }, body] }
    stderr_of { assert_equal 404, get.status }
    assert(Timeout.timeout(PATIENCE_SECONDS) { closed.pop })
    assert_empty closed
  end

  def test_without_a_declared_folder_the_field_is_the_application_s_own
    response = get_named("X-Sendfile", "/etc/passwd", [])
    assert_equal ["not this", "/etc/passwd"], [response.body, response["x-sendfile"]]
  end
end
