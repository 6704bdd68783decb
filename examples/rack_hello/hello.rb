# frozen_string_literal: true

require "fileutils"

# Small responses of known cost, for comparisons of servers. Each path does one thing.
class Hello
  TEXT = "Decide once, at open; then get out of the way and let the kernel move the bytes. " \
         "A hundred and twenty-one bytes, counted\n"
  FILE_BYTES = 9_000_000
  CPU_SECONDS = 0.005
  SLEEP_SECONDS = 0.05

  # A body that is a file: servers that know `to_path` send it without reading it here.
  class FileBody
    CHUNK_BYTES = 65_536

    attr_reader :to_path

    def initialize(path)
      @to_path = path
    end

    def each
      File.open(@to_path, "rb") do |file|
        while (chunk = file.read(CHUNK_BYTES))
          yield chunk
        end
      end
    end
  end

  # `folder` is where the large file is made, once.
  def initialize(folder)
    @file = large_file(folder)
  end

  def call(env)
    case env["PATH_INFO"]
    when "/" then text
    when "/cpu" then cpu
    when "/sleep" then sleep_and_answer
    when "/file" then file
    when "/sendfile" then sendfile(env)
    else [404, { "content-type" => "text/plain" }, ["not found\n"]]
    end
  end

  private

  def text
    headers = { "content-type" => "text/plain", "content-length" => TEXT.bytesize.to_s }
    [200, headers, [TEXT]]
  end

  # Processor time of this thread, so that it costs the same however many threads compete.
  def cpu
    clock = Process::CLOCK_THREAD_CPUTIME_ID
    over = Process.clock_gettime(clock) + CPU_SECONDS
    nil while Process.clock_gettime(clock) < over
    text
  end

  def sleep_and_answer
    sleep SLEEP_SECONDS
    text
  end

  def file
    [200, file_headers.merge("content-length" => FILE_BYTES.to_s), FileBody.new(@file)]
  end

  # For servers that send the file which the header names; they may say how they spell it.
  def sendfile(env)
    header = env["sendfile.type"] || env["HTTP_X_SENDFILE_TYPE"] || "x-sendfile"
    [200, file_headers.merge(header => @file), []]
  end

  def file_headers
    { "content-type" => "application/octet-stream" }
  end

  # By rename, so that workers which start together all find it whole.
  def large_file(folder)
    path = File.expand_path("nine_megabytes", folder)
    return path if File.size?(path) == FILE_BYTES

    FileUtils.mkdir_p(folder)
    partial = "#{path}.#{Process.pid}"
    File.binwrite(partial, Random.new(121).bytes(FILE_BYTES))
    File.rename(partial, path)
    path
  end
end
