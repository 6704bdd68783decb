# frozen_string_literal: true

require "net/http"
require "preloading"
require "ports"

# A server is a command too: it listens in the fork, and ends as always.
class PreloadServerTest < Minitest::Test
  include Preloading

  def test_rails_server_is_a_fork
    application(RailsApplication) do |made|
      first = serve(made)
      made.await_template
      assert_equal 0, made.templates.first["forks"]
      assert_equal first, serve(made)
      assert_equal 1, made.templates.first["forks"]
    end
  end

  private

  # Starts a server, and answers with the status of a page and how the server ended.
  def serve(made)
    port = Ports.free_port
    words = %W[run --preload -- bin/rails server -b 127.0.0.1 -p #{port}]
    streams = { in: File::NULL, out: File::NULL, err: File::NULL }
    server = spawn(made.environment, THRUWAY, *words, chdir: made.folder, **streams)
    page = Preloading.await("a page of Rails' server") { page_of(port) }
    Process.kill(:TERM, server)
    status = Preloading.status_of(server, "Rails' server")
    server = nil
    [page, status.exitstatus, status.termsig]
  ensure
    Process.kill(:KILL, server) if server
  end

  def page_of(port)
    Net::HTTP.get_response(URI("http://127.0.0.1:#{port}/")).code
  rescue Errno::ECONNREFUSED
    nil
  end
end
