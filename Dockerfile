# The command and its gem, for Ruby 3.1 to 3.3: docker build -t thruway . after cargo x dist platform-gem.
# An application's own image starts from its Ruby's image and needs the two lines below FROM alone.
FROM debian:13-slim
RUN apt-get update -qq && apt-get install -qq --no-install-recommends ruby && rm -rf /var/lib/apt/lists/*
COPY target/dist/thruway-*-x86_64-linux.gem /tmp/
RUN gem install --local --no-document /tmp/thruway-*-x86_64-linux.gem && rm /tmp/thruway-*.gem
WORKDIR /srv
EXPOSE 9292
ENTRYPOINT ["thruway"]
CMD ["serve", ".", "--bind", "tcp://0.0.0.0:9292"]
